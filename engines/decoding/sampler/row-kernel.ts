// RowKernel: the interface of a sampling kernel that works on one row of logits. wasm-kernel.ts (SIMD) and
// reference-kernel.ts (plain TypeScript) implement it and pass the same tests. A kernel has no state of sequences:
// sampler.ts applies penalties to the row first.

/** Filters of the token distribution. Neutral values switch a filter off: topK 0, topP 1, minP 0. */
export interface Filters {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
}

/** Number of 32-bit words in a mask over a vocabulary. */
export function maskWords(vocabSize: number): number {
  return Math.ceil(vocabSize / 32);
}

/**
 * A kernel for one row: write the logits into `row`, then call the methods. NaN counts as -inf. A token at -inf is
 * never chosen. A token at +inf is always chosen; if there are several, the one with the lowest id.
 */
export interface RowKernel {
  readonly vocabSize: number;
  readonly row: Float32Array;
  /** Input of restrict(): one bit per token; token 0 is the lowest bit of word 0. */
  readonly mask: Int32Array;
  /** Result of the last call of top(), likeliest first. */
  readonly topIds: Int32Array;
  readonly topLogits: Float32Array;
  /** Sets the logit of each token whose bit in `mask` is 0 to -inf. */
  restrict(): void;
  /** Returns the likeliest token; the lowest id among equals; -1 if no token can be chosen. */
  argmax(): number;
  /**
   * Draws a token from the distribution softmax(row / temperature). `u` is a uniform random number, 0 <= u < 1. The
   * filters apply in this order: top-k keeps the k likeliest tokens; top-p keeps the smallest set of likeliest tokens
   * with at least this share of the remaining probability; min-p keeps the tokens with at least this probability
   * relative to the likeliest. Among equally likely tokens, lower ids are kept. After the filters, the probabilities of
   * the remaining tokens are renormalised. `u` selects a token from the cumulative distribution, in which tokens are in
   * order of their ids. Returns -1 if no token can be chosen.
   */
  draw(filters: Filters, u: number): number;
  /** Returns ln(sum(exp(row))); -Infinity if no token can be chosen. */
  logSum(): number;
  /**
   * Finds the `limit` likeliest tokens, lower ids first among equals. Returns their number, which is less than `limit`
   * if too few tokens are above -inf.
   */
  top(limit: number): number;
}
