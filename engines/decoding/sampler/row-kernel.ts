// Owns what a sampling kernel must answer about one row of logits. wasm-kernel.ts (SIMD) and reference-kernel.ts
// (plain) both do; the same tests hold them to it. A kernel knows nothing of sequences: sampler.ts edits the row
// beforehand.

/** How a draw narrows the row. Neutral values switch a stage off: topK 0, topP 1, minP 0. */
export interface Filters {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
}

/** Words of a mask over so many tokens. */
export function maskWords(vocabSize: number): number {
  return Math.ceil(vocabSize / 32);
}

/**
 * The work on one row. Put the logits into `row`, then ask. NaN counts as -inf, and a token at -inf is never chosen; a
 * token at +inf always is, the lowest id where there are several.
 */
export interface RowKernel {
  readonly vocabSize: number;
  readonly row: Float32Array;
  /** For restrict(): a bit for each token, the lowest of word 0 first. */
  readonly mask: Int32Array;
  /** What the last top() found, likeliest first. */
  readonly topIds: Int32Array;
  readonly topLogits: Float32Array;
  /** Puts the tokens whose bit in `mask` is not set to -inf. */
  restrict(): void;
  /** The likeliest token, the lowest id where several are; -1 if no token can be chosen. */
  argmax(): number;
  /**
   * The token at the uniform number 0 <= u < 1 of the distribution softmax(row / temperature), cut in this order and
   * renormalised: top-k keeps the k likeliest; top-p the smallest set of likeliest tokens that holds this much of what
   * top-k left; min-p the tokens at least this likely relative to the likeliest. Among equals lower ids stay. Tokens
   * lie along 0..1 in id order. -1 if no token can be chosen.
   */
  draw(filters: Filters, u: number): number;
  /** ln(sum(exp(row))); -Infinity if no token can be chosen. */
  logSum(): number;
  /**
   * Finds the `limit` likeliest tokens, lower ids first among equals. Returns how many: fewer if others are at -inf.
   */
  top(limit: number): number;
}
