// Page with the server's activity: charts of the metrics of the last few minutes.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { t } from "../base/language.ts";
import type { TextKey } from "../base/texts/en.ts";
import { number } from "../base/times.ts";
import { request } from "../server/client.ts";
import { meanOf, rateOf, ratioOf, type Samples, samplesOf } from "./metrics.ts";
import { Requests } from "./requests.tsx";

const everyMs = 1000;
const mostPoints = 300;

interface Line {
  readonly key: TextKey;
  readonly value: (before: Samples, now: Samples, seconds: number) => number | null;
}

const level = (name: string) => (_before: Samples, now: Samples) => now.get(name) ?? null;
const rate = (name: string) => (before: Samples, now: Samples, seconds: number) => rateOf(name, before, now, seconds);

const tokens = "service_tokens_processed_total";
const steps = "service_steps_total";

const charts: readonly { readonly title: TextKey; readonly lines: readonly Line[] }[] = [
  {
    title: "chartTokens",
    lines: [
      { key: "generatedTokens", value: rate("service_generated_tokens_total") },
      { key: "promptTokensRate", value: rate("service_prompt_tokens_total") },
    ],
  },
  {
    title: "chartFirstToken",
    lines: [
      {
        key: "seconds",
        value: (before, now) => meanOf("service_time_to_first_token_seconds", before, now),
      },
    ],
  },
  {
    title: "chartSequences",
    lines: [
      { key: "sequencesRunning", value: level("service_sequences_running") },
      { key: "sequencesWaiting", value: level("service_sequences_waiting") },
    ],
  },
  {
    title: "chartBatch",
    lines: [{ key: "tokensPerStep", value: (before, now) => ratioOf(tokens, steps, before, now) }],
  },
  {
    title: "chartKv",
    lines: [
      { key: "blocksUsed", value: level("service_kv_cache_blocks_used") },
      { key: "blocksTotal", value: level("service_kv_cache_blocks_total") },
    ],
  },
  {
    title: "chartPrefix",
    lines: [
      { key: "lookups", value: rate("service_prefix_cache_lookups_total") },
      { key: "hits", value: rate("service_prefix_cache_hits_total") },
    ],
  },
];

const colours = ["#3d5afe", "#e0662d"];

export function ActivityPage() {
  const history = useRef<{ times: number[]; readings: Samples[] }>({ times: [], readings: [] });
  const [count, setCount] = useState(0);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let isOver = false;
    const read = async (): Promise<void> => {
      if (document.hidden) return;
      try {
        const text = await (await request("metrics")).text();
        const { times, readings } = history.current;
        times.push(Date.now() / 1000);
        readings.push(samplesOf(text));
        if (times.length > mostPoints) {
          times.shift();
          readings.shift();
        }
        setProblem("");
        setCount((before) => before + 1);
      } catch (error) {
        if (!isOver) setProblem(error instanceof Error ? error.message : String(error));
      }
    };
    void read();
    const timer = setInterval(() => void read(), everyMs);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, []);
  const { times, readings } = history.current;
  return (
    <div class="page">
      <h1>{t("pageActivity")}</h1>
      {problem !== "" && <p class="problem">{problem}</p>}
      <Requests />
      <div class="charts">
        {charts.map(({ title, lines }) => (
          <Chart key={title} title={t(title)} lines={lines} times={times} readings={readings} count={count} />
        ))}
      </div>
    </div>
  );
}

interface ChartProps {
  readonly title: string;
  readonly lines: readonly Line[];
  readonly times: readonly number[];
  readonly readings: readonly Samples[];
  /** Number of samples so far. The chart is redrawn when it changes. */
  readonly count: number;
}

function Chart({ title, lines, times, readings, count }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const columns = lines.map(({ value }) =>
    times.map((time, i) => {
      const [before, now] = [readings[i - 1], readings[i]];
      return before === undefined || now === undefined ? null : value(before, now, time - (times[i - 1] ?? time));
    }),
  );
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const { color } = getComputedStyle(element);
    const axis = { stroke: color, grid: { stroke: "#80808040" }, ticks: { stroke: "#80808040" } };
    const drawn = new uPlot(
      {
        width: element.clientWidth,
        height: 180,
        cursor: { show: false },
        legend: { show: false },
        axes: [axis, { ...axis, size: 60 }],
        scales: { y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
        series: [
          {},
          ...lines.map(({ key }, i) => ({
            label: t(key),
            stroke: colours[i] ?? color,
            width: 2,
            spanGaps: true,
            points: { show: false },
          })),
        ],
      },
      [[], ...lines.map(() => [])],
      element,
    );
    plot.current = drawn;
    const watch = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height: 180 }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.destroy();
    };
  }, []);
  useEffect(() => {
    plot.current?.setData([[...times], ...columns]);
  }, [count]);
  const now = columns.map((column) => column.findLast((value) => value !== null) ?? null);
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>
        {lines.map(({ key }, i) => (
          <span key={key} class="legend">
            <i style={{ background: colours[i] ?? "" }} />
            {t(key)}: <output>{now[i] === null || now[i] === undefined ? "–" : number(now[i] as number, 2)}</output>
          </span>
        ))}
      </figcaption>
      <div ref={frame} />
    </figure>
  );
}
