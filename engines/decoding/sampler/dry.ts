// DRY penalty ("don't repeat yourself") of one sequence: keeps the latest tokens, including the prompt, and searches
// them for tokens that would continue a repetition. Called by SamplingState. The time per token is linear in the
// look-back (the number of searched tokens), whatever the tokens are.
import type { Dry } from "../../generation.ts";

/** Number of latest tokens that are searched for repetitions. */
export const DRY_LOOK_BACK = 4096;

/**
 * Maximum penalty. It is far larger than any logit but finite, so a penalised token can still be
 * chosen if there is no other token.
 */
const MAX_PENALTY = 1e9;

/**
 * Penalises tokens that would continue a repetition. If the last `length` tokens of the sequence also occurred
 * earlier, the token that followed the earlier occurrence would continue the repetition. If `length` is at least
 * `allowedLength`, `multiplier * base^(length - allowedLength)` is subtracted from the logit of that token. The
 * longest repetition of each token counts. Repetitions do not extend across breaker tokens, and breaker tokens are
 * never penalised.
 */
export class DryPenalty {
  readonly #multiplier: number;
  readonly #base: number;
  readonly #allowedLength: number;
  readonly #breakers: ReadonlySet<number>;
  /**
   * The latest tokens; the first #count entries are valid. The array has twice the size of the look-back,
   * so its entries are seldom moved.
   */
  readonly #tokens = new Int32Array(2 * DRY_LOOK_BACK);
  #count = 0;
  /** Number of tokens since the last breaker token. */
  #run = 0;
  readonly #matches = new Int32Array(DRY_LOOK_BACK);
  /** By token: length of the longest repetition that it would continue. */
  readonly #longest = new Map<number, number>();

  constructor(dry: Dry, prompt: Int32Array, breakers: Int32Array) {
    this.#multiplier = dry.multiplier;
    this.#base = dry.base;
    this.#allowedLength = Math.max(1, dry.allowedLength);
    this.#breakers = new Set(breakers);
    for (const token of prompt.subarray(-DRY_LOOK_BACK)) this.record(token);
  }

  record(token: number): void {
    if (this.#count === this.#tokens.length) {
      this.#tokens.copyWithin(0, DRY_LOOK_BACK);
      this.#count = DRY_LOOK_BACK;
    }
    this.#tokens[this.#count++] = token;
    this.#run = this.#breakers.has(token) ? 0 : this.#run + 1;
  }

  apply(row: Float32Array): void {
    if (this.#run < this.#allowedLength) return;
    this.#findRepetitions();
    for (const [token, length] of this.#longest) {
      const penalty = this.#multiplier * this.#base ** (length - this.#allowedLength);
      row[token] = (row[token] as number) - Math.min(penalty, MAX_PENALTY);
    }
  }

  /**
   * Finds all repetitions with the Z algorithm over the tokens in reverse order. matches[i]: length of the longest
   * common suffix of the sequence and of the sequence without its last i tokens. [left, right): the match that extends
   * furthest back. Inside this range, comparisons start from earlier results.
   */
  #findRepetitions(): void {
    const tokens = this.#tokens;
    const matches = this.#matches;
    const last = this.#count - 1;
    const size = Math.min(this.#count, DRY_LOOK_BACK);
    const run = Math.min(this.#run, size);
    this.#longest.clear();
    let left = 0;
    let right = 0;
    for (let i = 1; i < size; i++) {
      let match = i < right ? Math.min(right - i, matches[i - left] as number) : 0;
      while (match < run && i + match < size && tokens[last - match] === tokens[last - i - match]) match++;
      matches[i] = match;
      if (i + match > right) {
        left = i;
        right = i + match;
      }
      if (match >= this.#allowedLength) this.#note(tokens[last - i + 1] as number, match);
    }
  }

  #note(token: number, length: number): void {
    if (this.#breakers.has(token)) return;
    if (length > (this.#longest.get(token) ?? 0)) this.#longest.set(token, length);
  }
}
