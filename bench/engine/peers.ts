// Speeds reported by llama.cpp's own benchmark programs, for `bench engine`.
import { basename } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { output } from "../command.ts";

/** Sizes of the measurement, equal for troupe and llama.cpp. */
export interface Sizes {
  readonly model: string;
  readonly threads: number;
  /** Length of the single long prompt, in tokens. */
  readonly promptTokens: number;
  /** Tokens in each sequence's KV cache before it decodes. */
  readonly depth: number;
  readonly newTokens: number;
  readonly sequences: readonly number[];
  /** Whether troupe and llama.cpp compute on the GPU. */
  readonly gpu: boolean;
}

/** Tokens per second. The keys come from prefillKey and decodeKey. */
export type Speeds = ReadonlyMap<string, number>;

export const prefillKey = "prefill";
export const decodeKey = (sequences: number): string => `decode ${sequences}`;

/** Returns the flags of llama.cpp's programs that put all layers on the GPU or, if `gpu` is false, no layer. */
export function layersOnGpu(gpu: boolean): string[] {
  return ["-ngl", gpu ? "999" : "0"];
}

/** Runs `program`, which is llama-bench or llama-batched-bench, once. */
export async function measurePeer(program: string, sizes: Sizes): Promise<Speeds> {
  const name = basename(program).replace(/\.exe$/, "");
  if (name === "llama-bench") return await llamaBench(program, sizes);
  if (name === "llama-batched-bench") return await batchedBench(program, sizes);
  throw new ServerError("config_invalid", `--peer expects llama-bench or llama-batched-bench; got "${program}"`);
}

/** Measures prefill of one prompt and decode of one sequence. */
async function llamaBench(program: string, { model, threads, promptTokens, newTokens, gpu }: Sizes): Promise<Speeds> {
  const tests = ["-p", String(promptTokens), "-n", String(newTokens), "-r", "1"];
  const device = ["-t", String(threads), ...layersOnGpu(gpu)];
  const text = await output(program, ["-m", model, ...tests, ...device, "-o", "json"]);
  const results = JSON.parse(text) as { n_prompt: number; n_gen: number; avg_ts: number }[];
  return new Map(results.map(({ n_gen, avg_ts }) => [n_gen === 0 ? prefillKey : decodeKey(1), avg_ts]));
}

/** Measures decode of several sequences at once. */
async function batchedBench(program: string, sizes: Sizes): Promise<Speeds> {
  const { model, threads, depth, newTokens, sequences } = sizes;
  const context = Math.max(...sequences) * (depth + newTokens);
  const lengths = [
    "-c",
    String(context),
    "-npp",
    String(depth),
    "-ntg",
    String(newTokens),
    "-npl",
    sequences.join(","),
  ];
  const threadFlags = ["-t", String(threads), "-tb", String(threads), ...layersOnGpu(sizes.gpu)];
  const text = await output(program, ["-m", model, ...lengths, ...threadFlags, "--output-format", "jsonl"]);
  const lines = text.split("\n").filter((line) => line.startsWith("{"));
  const results = lines.map((line) => JSON.parse(line) as { pl: number; speed_tg: number });
  if (results.length === sequences.length) return new Map(results.map(({ pl, speed_tg }) => [decodeKey(pl), speed_tg]));
  throw new ServerError("internal", `expected ${sequences.length} lines of JSON from ${program}; got:\n${text}`);
}
