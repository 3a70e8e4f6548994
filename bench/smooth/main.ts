// `bench smooth`: pauses of decoding streams while long prompts arrive, and the latency of these prompts.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { median } from "../../cli/bench/report.ts";
import { atMost, exactly, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { type Answer, ask, firstTextAfterMs } from "../serving/client/ask.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { answered, shown } from "../serving/show.ts";
import { ours, peers, type Side, sideFlags, sideOptions, sideUsage, withSides } from "../serving/sides.ts";
import { DecodeStreams } from "./streams.ts";

const streamCount = 8;
const streamTokens = 512;
const settleMs = 3_000;
/** Number of long prompts measured without other streams. */
const aloneCount = 3;
const answerTokens = 16;
const sizes = { sequences: 16, tokensEach: 4608 };

interface Course {
  readonly seconds: number;
  readonly quietSeconds: number;
  readonly everySeconds: number;
  readonly promptTokens: number;
}

export const usage = `npm run bench -- smooth [FLAGS]: pauses of decoding streams while long prompts arrive

  --seconds 180         duration with long prompts, after --quiet-seconds 60 without
  --every 15            seconds between the starts of two long prompts
  --prompt-tokens 4096
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...sideFlags,
      "--seconds": Number,
      "--quiet-seconds": Number,
      "--every": Number,
      "--prompt-tokens": Number,
    },
    { argv: [...argv] },
  );
  const options = await sideOptions(flags, 1);
  const course: Course = {
    seconds: flags["--seconds"] ?? 180,
    quietSeconds: flags["--quiet-seconds"] ?? 60,
    everySeconds: flags["--every"] ?? 15,
    promptTokens: flags["--prompt-tokens"] ?? 4096,
  };
  const tables: string[] = [];
  for (const start of [ours(options, sizes), ...peers(options, sizes)]) {
    tables.push(await withSides([start], async ([side]) => findingsTable(side.label, await runCourse(side, course))));
  }
  report(
    {
      name: "smooth",
      title: "Streams beside long prompts",
      method:
        `${streamCount} streams of ${streamTokens} tokens, renewed when they end, for ${course.quietSeconds} s quiet; then ` +
        `${course.seconds} s with one prompt of about ${course.promptTokens} tokens every ${course.everySeconds} s, none like ` +
        "another. A pause is the time between two texts of one stream. Each side by itself, the bars are ours. " +
        `${options.threads} threads, clients on the same cores.`,
      body: tables.join("\n\n"),
    },
    options.save,
  );
}

async function runCourse({ label, url }: Side, course: Course): Promise<Finding[]> {
  const prompts = await SizedPrompts.create(url);
  const askLong = () => {
    const messages = [{ role: "user", content: prompts.take(course.promptTokens) }] as const;
    return ask(url, { messages, maxTokens: answerTokens, fields: { ignore_eos: true } });
  };
  process.stderr.write(`smooth, ${label}: ${aloneCount} prompts alone\n`);
  const alone: Answer[] = [];
  for (let i = 0; i < aloneCount; i++) alone.push(await askLong());
  const streams = new DecodeStreams({ url, count: streamCount, maxTokens: streamTokens, prompts });
  await sleep(settleMs);
  streams.takeGaps();
  process.stderr.write(`smooth, ${label}: quiet for ${course.quietSeconds} s\n`);
  await sleep(course.quietSeconds * 1000);
  const quiet = streams.takeGaps();
  process.stderr.write(`smooth, ${label}: prompts for ${course.seconds} s\n`);
  const beside = await askNowAndThen(askLong, course);
  const busy = streams.takeGaps();
  return findings(alone, beside, quiet, busy, await streams.stop());
}

/** Sends a long prompt at fixed intervals, even if the previous one is still running. */
async function askNowAndThen(askLong: () => Promise<Answer>, { seconds, everySeconds }: Course): Promise<Answer[]> {
  const startMs = performance.now();
  const asked: Promise<Answer>[] = [];
  for (let second = 0; second < seconds; second += everySeconds) {
    await sleep(Math.max(0, startMs + second * 1000 - performance.now()));
    asked.push(askLong());
  }
  await sleep(Math.max(0, startMs + seconds * 1000 - performance.now()));
  return Promise.all(asked);
}

function findings(
  alone: readonly Answer[],
  beside: readonly Answer[],
  quiet: readonly number[],
  busy: readonly number[],
  failures: readonly string[],
): Finding[] {
  const [quietMs, busyMs] = [percentiles(quiet), percentiles(busy)];
  const aloneMs = median(alone.map(firstTextAfterMs));
  const besideMs = beside.map(firstTextAfterMs);
  const three = ({ p50, p90, p99 }: typeof quietMs, all: readonly number[]) =>
    [p50, p90, p99, largest(all)].map((value) => value.toFixed(0)).join(", ");
  return [
    told("pauses quiet: p50, p90, p99, longest", `${three(quietMs, quiet)} ms`),
    told("pauses beside prompts", `${three(busyMs, busy)} ms`),
    told("longest over the longest quiet", (largest(busy) / largest(quiet)).toFixed(2)),
    atMost("p99 over quiet", busyMs.p99 / quietMs.p99, 4),
    told(
      "tokens of a prompt",
      shown(
        beside.map(({ promptTokens }) => promptTokens),
        0,
      ),
    ),
    told("first token alone", shown(alone.map(firstTextAfterMs), 0, " ms")),
    told("first token beside streams", shown(besideMs, 0, " ms")),
    atMost("slowest prompt over alone", largest(besideMs) / aloneMs, 2),
    answered("prompts answered", beside),
    exactly("prompts refused", beside.filter(({ status }) => status === 429).length, 0),
    exactly("streams that failed", failures.length, 0),
  ];
}

function largest(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}
