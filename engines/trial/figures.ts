// Owns what is known of how fast an engine runs a model, and the one number that engines are compared by.
import type { EngineName } from "../engine.ts";

/** Tokens a second, scaled from an excerpt to the whole model by the bytes of their weights: estimates. */
export interface EngineFigures {
  /** Prompt tokens of one sequence; of an encoder, tokens of texts. */
  readonly prompt: number;
  /** New tokens of one sequence; null for an encoder. */
  readonly oneRow: number | null;
  /** New tokens of 16 sequences together; null for an encoder. */
  readonly sixteenRows: number | null;
}

export type TrialFigures = Readonly<Record<EngineName, EngineFigures>>;

/** Tokens of a chat's prompt for each that is written: what prompts weigh against decodes in the choice of the engine. */
const promptTokensPerNewToken = 4;

/** The engine that takes less time for a chat, half of its tokens written alone and half beside 15 others. */
export function quickerEngine({ wasm, llama }: TrialFigures): EngineName {
  return secondsPerNewToken(wasm) <= secondsPerNewToken(llama) ? "wasm" : "llama";
}

/** First version of Node whose V8 compiles the wasm engine to faster code, and the gain that is assumed: bench/results/engine-wasm.md. */
export const fasterNode = { major: 24, gain: 1.5 } as const;

/** Whether wasm would be the quicker engine on a Node of `fasterNode`, where prompts and batches gain. */
export function gainsByFasterNode({ wasm, llama }: TrialFigures): boolean {
  const { prompt, oneRow, sixteenRows } = wasm;
  const { gain } = fasterNode;
  const faster = { prompt: prompt * gain, oneRow, sixteenRows: sixteenRows === null ? null : sixteenRows * gain };
  return quickerEngine({ wasm: faster, llama }) === "wasm";
}

function secondsPerNewToken({ prompt, oneRow, sixteenRows }: EngineFigures): number {
  const written = oneRow === null || sixteenRows === null ? 0 : (1 / oneRow + 1 / sixteenRows) / 2;
  return promptTokensPerNewToken / prompt + written;
}

/** For a person: "prompts 812, decode 61 alone and 402 of 16 (tokens/s)". */
export function describeFigures({ prompt, oneRow, sixteenRows }: EngineFigures): string {
  const decode =
    oneRow === null || sixteenRows === null ? "" : `, decode ${shown(oneRow)}, 16 at once ${shown(sixteenRows)}`;
  return `prompt ${shown(prompt)}${decode}`;
}

function shown(speed: number): string {
  return speed < 10 ? speed.toFixed(1) : speed.toFixed(0);
}
