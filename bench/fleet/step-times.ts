// Step times of a replica: how long a step takes, measured by `troupe bench` on a machine of the fleet.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Row } from "../../cli/bench/report.ts";
import { ServerError } from "../../runtime/errors.ts";
import { troupe } from "../command.ts";

/** Tokens of the prompt and of the answer with which the times are measured, unless the load has others. */
const usualLengths = { prompt: 256, answer: 64 };

export interface StepTimes {
  /** Milliseconds of a step that only decodes, by number of sequences, ascending. */
  readonly decode: readonly (readonly [sequences: number, ms: number])[];
  /** Milliseconds of one more prompt token in a step. */
  readonly promptTokenMs: number;
  /** Milliseconds from the arrival of a request until the engine could begin with it, and from its first token to the client. */
  readonly requestMs: number;
}

/** Returns the milliseconds of a step, interpolated between the measured numbers of sequences. */
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

/** Measures the step times of a model on this machine, without HTTP: `requestMs` is 0. */
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
  // The report has some numbers of sequences twice.
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

/** Reads step times that were written by hand: `1:6,8:14,32:40/0.9/5`, decode by sequences, prompt token, request. */
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
