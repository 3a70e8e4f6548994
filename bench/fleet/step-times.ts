// Step times of a replica: durations of the engine's steps, measured by `troupe bench` on this machine or given as a flag.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Row } from "../../cli/bench/report.ts";
import { ServerError } from "../../runtime/errors.ts";
import { troupe } from "../command.ts";

/** Default lengths for the measurement, in tokens. */
const usualLengths = { prompt: 256, answer: 64 };

export interface StepTimes {
  /** Duration in ms of a step that only decodes, by number of sequences, in ascending order. */
  readonly decode: readonly (readonly [sequences: number, ms: number])[];
  /** Additional duration of a step for each prompt token, in ms. */
  readonly promptTokenMs: number;
  /** Overhead of a request in ms: once from its arrival to the engine, and again from the engine's token to the client. */
  readonly requestMs: number;
}

/** Returns the duration of a step in ms, interpolated between the measured numbers of sequences. */
export function stepMs({ decode, promptTokenMs }: StepTimes, decodes: number, promptTokens: number): number {
  return decodeMs(decode, decodes) + promptTokens * promptTokenMs;
}

function decodeMs(points: StepTimes["decode"], sequences: number): number {
  if (sequences === 0) return 0;
  const above = points.findIndex(([count]) => count >= sequences);
  const [low, high] = [
    points[above === -1 ? points.length - 2 : Math.max(above - 1, 0)],
    points[above === -1 ? points.length - 1 : above],
  ];
  if (low === undefined || high === undefined) throw new Error("step times need two numbers of sequences");
  if (low[0] === high[0]) return high[1];
  return low[1] + ((high[1] - low[1]) * (sequences - low[0])) / (high[0] - low[0]);
}

/** Measures the step times of a model on this machine. The measurement does not use HTTP, so `requestMs` is 0. */
export async function measureStepTimes(
  model: string,
  threads: number,
  flags: readonly string[],
  { prompt, answer } = usualLengths,
): Promise<StepTimes> {
  const lengths = ["--prompt-len", prompt, "--gen-len", answer, "--depth", prompt].map(String);
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [troupe, "bench", "-m", model, "--threads", String(threads), "--json", ...lengths, ...flags],
    { maxBuffer: 2 ** 24 },
  );
  const { rows } = JSON.parse(stdout) as { rows: readonly Row[] };
  // The report lists some numbers of sequences twice, so a map keeps one value for each.
  const bySequences = new Map(
    rows
      .filter(({ kind }) => kind === "decode")
      .map(({ sequences, tokensPerSecond }) => [sequences, (sequences * 1000) / tokensPerSecond] as const),
  );
  const decode = [...bySequences].sort(([a], [b]) => a - b);
  const prefill = rows.find(({ kind }) => kind === "prefill");
  if (decode.length < 2 || prefill === undefined) {
    throw new ServerError(
      "config_invalid",
      "expected the speeds of prefill and of two decode batches; use --max-seqs 8",
    );
  }
  return { decode, promptTokenMs: 1000 / prefill.tokensPerSecond, requestMs: 0 };
}

/** Parses step times such as `1:6,8:14,32:40/0.9/5`: decode times by number of sequences / ms per prompt token / ms per request. */
export function parseStepTimes(text: string): StepTimes {
  const [points = "", promptTokenMs = Number.NaN, requestMs = 0] = text
    .split("/")
    .map((part, i) => (i === 0 ? part : Number(part))) as [string, number, number];
  const decode = points
    .split(",")
    .map((point) => point.split(":").map(Number) as [number, number])
    .sort(([a], [b]) => a - b);
  const numbers = [...decode.flat(), promptTokenMs, requestMs];
  if (decode.length < 2 || decode.some(({ length }) => length !== 2) || !numbers.every((one) => one >= 0)) {
    throw new ServerError(
      "config_invalid",
      `--step-times expects milliseconds such as 1:6,8:14,32:40/0.9/5 (decode by sequences / prompt token / request); got "${text}"`,
    );
  }
  return { decode, promptTokenMs, requestMs };
}
