// Held logprobs: queue of the logprobs of a choice's latest tokens. An entry stays until the text of its token is parsed.
import { type LogprobRecords, recordHead } from "../../../engines/logprobs.ts";

interface HeldToken {
  /** Length of the choice's text before and after this token, in characters. Both are equal if the token completes no character. */
  readonly start: number;
  readonly end: number;
  /** Index in #floats after the token's record. */
  readonly recordEnd: number;
}

export class HeldLogprobs {
  #tokens: HeldToken[] = [];
  #floats = new Float32Array(64);
  /** Index of the first token in #tokens that is still queued. */
  #first = 0;

  get count(): number {
    return this.#tokens.length - this.#first;
  }

  /** Adds a token whose text spans the characters `start` to `end`. Its logprob record starts at index `at` of the token frame. */
  add(start: number, end: number, token: number, frame: Float32Array, at: number): void {
    // If fewer tokens are queued than have left the queue, moves the queued ones to the front of the arrays.
    if (this.#first > this.count) this.#compact();
    const from = this.#tokens.at(-1)?.recordEnd ?? 0;
    const recordEnd = from + recordHead + 2 * (frame[at + 1] as number);
    if (recordEnd > this.#floats.length) this.#grow(recordEnd);
    this.#floats[from] = token;
    for (let i = from + 1; i < recordEnd; i++) this.#floats[i] = frame[at + i - from - 1] as number;
    this.#tokens.push({ start, end, recordEnd });
  }

  /** Returns the number of queued tokens whose text begins before character `at`. */
  countBefore(at: number): number {
    let next = this.#first;
    while (next < this.#tokens.length && (this.#tokens[next] as HeldToken).start < at) next++;
    return next - this.#first;
  }

  /** Drops the tokens whose text ends at or before character `at`. Tokens without text at `at` are kept. */
  dropBefore(at: number): void {
    while (this.count > 0) {
      const { start, end } = this.#tokens[this.#first] as HeldToken;
      if (end > at || start >= at) return;
      this.#first++;
    }
  }

  drop(count: number): void {
    this.#first += Math.max(count, 0);
  }

  take(count: number): LogprobRecords {
    const from = this.#left;
    this.#first += count;
    return { count, floats: this.#floats.slice(from, this.#left) };
  }

  /** Number of floats at the start of #floats whose tokens have left the queue. */
  get #left(): number {
    return this.#tokens[this.#first - 1]?.recordEnd ?? 0;
  }

  #compact(): void {
    const left = this.#left;
    this.#floats.copyWithin(0, left, this.#tokens.at(-1)?.recordEnd);
    const waiting = this.#tokens.slice(this.#first);
    this.#tokens = waiting.map((token) => ({ ...token, recordEnd: token.recordEnd - left }));
    this.#first = 0;
  }

  #grow(least: number): void {
    const grown = new Float32Array(2 * least);
    grown.set(this.#floats);
    this.#floats = grown;
  }
}
