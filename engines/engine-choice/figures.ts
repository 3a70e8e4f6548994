// Measured speeds of the engines for a model, and the comparison that picks the faster engine.
import type { TrialReport } from "../../runtime/host/system.ts";
import type { EngineName } from "../engine.ts";
import type { Speeds } from "./workloads.ts";

/**
 * Speeds of one engine for the whole model: the speeds measured on an excerpt (its first layers), scaled by the ratio
 * of the weight sizes.
 */
export type EngineFigures = TrialReport;

export type TrialFigures = Readonly<Record<EngineName, EngineFigures>>;

/**
 * Assumed ratio of computed prompt tokens to generated tokens. Prompt tokens in the prefix cache are not computed. The
 * ratio weights prefill against decode when the engine is chosen.
 */
const promptTokensPerNewToken = 2;

/**
 * Ratio of the time of a decode step in a server to its time in a trial. llama.cpp's threads spin at barriers, even
 * while one of them waits for a core on which the server or a client runs; wasm's threads sleep instead. Source:
 * bench/results/choice.md.
 */
const servedOverTrial: Readonly<Record<EngineName, number>> = { wasm: 1, llama: 1.25 };

/** Returns the engine with the lower time per generated token. */
export function quickerEngine(figures: TrialFigures): EngineName {
  return timeRatio(figures) <= 1 ? "wasm" : "llama";
}

/**
 * Returns the time per generated token of wasm divided by that of llama. Both times include the prefill of
 * `promptTokensPerNewToken` prompt tokens. The decode time is the mean of the times with 1 and with 16 sequences.
 */
export function timeRatio({ wasm, llama }: Readonly<Record<EngineName, Speeds>>): number {
  return secondsPerNewToken("wasm", wasm) / secondsPerNewToken("llama", llama);
}

/**
 * First Node version that runs wasm faster, and the assumed gain in prefill and batched decode. Source:
 * bench/results/engine-wasm.md.
 */
export const fasterNode = { major: 24, gain: 1.5 } as const;

/**
 * Returns the expected speedup of an update to Node `fasterNode`, where wasm's prefill and batched decode are faster by
 * the assumed gain. 1: no speedup over the engine that is faster now.
 */
export function gainByFasterNode({ wasm, llama }: TrialFigures): number {
  const { prompt, sixteenRows } = wasm;
  const { gain } = fasterNode;
  const faster = { ...wasm, prompt: prompt * gain, sixteenRows: sixteenRows === null ? null : sixteenRows * gain };
  const now = Math.min(secondsPerNewToken("wasm", wasm), secondsPerNewToken("llama", llama));
  return Math.max(1, now / secondsPerNewToken("wasm", faster));
}

function secondsPerNewToken(engine: EngineName, { prompt, oneRow, sixteenRows }: Speeds): number {
  const written = oneRow === null || sixteenRows === null ? 0 : (1 / oneRow + 1 / sixteenRows) / 2;
  return promptTokensPerNewToken / prompt + servedOverTrial[engine] * written;
}

/** Formats speeds (tokens/s) for the log: "prompt 812, decode 61, 16 at once 402, weights 139 MiB". */
export function describeFigures({ prompt, oneRow, sixteenRows, weightBytes }: EngineFigures): string {
  const decode =
    oneRow === null || sixteenRows === null ? "" : `, decode ${shown(oneRow)}, 16 at once ${shown(sixteenRows)}`;
  return `prompt ${shown(prompt)}${decode}, weights ${shown(weightBytes / 2 ** 20)} MiB`;
}

function shown(value: number): string {
  return value < 10 ? value.toFixed(1) : value.toFixed(0);
}
