// RowKernel: the interface of a sampling kernel on one row of logits. wasm-kernel.ts (SIMD) and reference-kernel.ts
// (plain) implement it and pass the same tests. A kernel knows nothing of sequences: sampler.ts edits the row first.

/** The filters of a draw. Neutral values switch a filter off: topK 0, topP 1, minP 0. */
export interface Filters {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
}

/** Words of a mask over this number of tokens. */
export function maskWords(vocabSize: number): number {
  return Math.ceil(vocabSize / 32);
}

/**
 * The work on one row: put the logits into `row`, then call the methods. NaN counts as -inf, and a token at -inf is
 * never chosen; a token at +inf always is, the lowest id if there are several.
 */
export interface RowKernel {
  readonly vocabSize: number;
  readonly row: Float32Array;
  /** For restrict(): a bit for each token, the lowest of word 0 first. */
  readonly mask: Int32Array;
  /** The result of the last top(), likeliest first. */
  readonly topIds: Int32Array;
  readonly topLogits: Float32Array;
  /** Sets the tokens whose bit in `mask` is not set to -inf. */
  restrict(): void;
  /** The likeliest token, the lowest id among equals; -1 if no token can be chosen. */
  argmax(): number;
  /**
   * The token at the uniform number 0 <= u < 1 of the distribution softmax(row / temperature), cut in this order and
   * renormalised: top-k keeps the k likeliest; top-p the smallest set of likeliest tokens that holds this share of the
   * rest; min-p the tokens at least this likely relative to the likeliest. Among equals lower ids stay. Tokens lie
   * along 0..1 in id order. -1 if no token can be chosen.
   */
  draw(filters: Filters, u: number): number;
  /** ln(sum(exp(row))); -Infinity if no token can be chosen. */
  logSum(): number;
  /**
   * Finds the `limit` likeliest tokens, lower ids first among equals. Returns their number: fewer if others are at
   * -inf.
   */
  top(limit: number): number;
}
