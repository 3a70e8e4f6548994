// Prompt lookup: drafts from the earlier tokens of the same sequence. If the last tokens of the sequence also occur
// earlier in it, the tokens after the earlier occurrence may come next. Prompt lookup runs no model and takes little
// time. So it predicts every token, even if no draft is used, and measures how many of its predictions are right. Used
// by Speculation.
import type { Sequence } from "../scheduler/sequence.ts";
import { Acceptance, SharedAcceptance } from "./acceptance.ts";
import { TokenIndex } from "./token-index.ts";

/**
 * Acceptance is recorded by match length: level i is for matches of at least levelStart[i] tokens. `priors`: assumed
 * chance of each level before any attempt.
 */
const levelStart = [2, 3, 4, 5, 7, 9, 13, 17, 33];
const priors = [0.3, 0.45, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.96];
/**
 * Maximum number of tokens that are compared to find the length of a new match. Longer matches are not more reliable.
 */
const longestMatch = 40;
/**
 * Minimum length, in tokens, of a copy of earlier text after which a mismatch may be a small edit. In this case, the
 * earlier text shortly after the mismatch is searched for the position at which the copy continues.
 */
const copyLength = 8;
/**
 * Limit, in tokens, of the search for the position at which a copy continues after a mismatch: how far the earlier
 * text is searched, and how many new tokens may follow before the search ends.
 */
const resumeReach = 24;

/** Creates the statistics of prompt lookup over all sequences of a model. */
export function sharedLookupAcceptance(): SharedAcceptance {
  return new SharedAcceptance(priors);
}

export class PromptLookup {
  readonly #sequence: Sequence;
  readonly #index: TokenIndex;
  readonly #acceptance: Acceptance;
  /** Position of the earlier token that is expected to be repeated next; 0: none. Always below `total`. */
  #cursor = 0;
  /** Number of tokens before the cursor that equal the last tokens of the sequence. */
  #matched = 0;
  /**
   * Position in the earlier text at which a long copy ended (0: none), and the position in the sequence at which the
   * search for the continuation of the copy ends.
   */
  #brokenAt = 0;
  #resumeUntil = 0;

  constructor(sequence: Sequence, shared: SharedAcceptance) {
    this.#sequence = sequence;
    this.#index = new TokenIndex(sequence.tokens, Math.min(sequence.total + resumeReach, sequence.tokens.length));
    this.#acceptance = new Acceptance(shared);
  }

  /** Reads at most `budget` new tokens of the sequence. Returns the number of tokens read. */
  follow(budget: number): number {
    const { total } = this.#sequence;
    const count = Math.min(total - this.#index.length, budget);
    for (let i = 0; i < count; i++) this.#take();
    return count;
  }

  /** Whether there is a draft for the position after the last token of the sequence. */
  get hasDraft(): boolean {
    return this.#cursor > 0 && this.#index.length === this.#sequence.total;
  }

  /** Chance that token `position` (from 0) of the draft is right if all tokens before it are right. */
  chance(position: number): number {
    return this.#acceptance.chance(levelOf(this.#matched + position));
  }

  /**
   * Writes the first `count` tokens of the draft, which copies the earlier tokens from the cursor on. If the copy
   * reaches the end of the sequence, the draft repeats its own tokens from the first.
   */
  write(draft: Int32Array, count: number): void {
    const { tokens, total } = this.#sequence;
    const known = Math.min(count, total - this.#cursor);
    for (let i = 0; i < known; i++) draft[i] = tokens[this.#cursor + i] as number;
    for (let i = known; i < count; i++) draft[i] = draft[i - known] as number;
  }

  /** Reads the next token of the sequence, compares it with the expected token, and finds the next expected token. */
  #take(): void {
    const { tokens, promptLength } = this.#sequence;
    const position = this.#index.length;
    const earlier = this.#index.add();
    const isHit = this.#cursor > 0 && tokens[this.#cursor] === tokens[position];
    if (this.#cursor > 0 && position >= promptLength) this.#acceptance.learn(levelOf(this.#matched), isHit);
    if (isHit) {
      this.#cursor++;
      this.#matched++;
      return;
    }
    if (this.#matched >= copyLength) {
      this.#brokenAt = this.#cursor;
      this.#resumeUntil = position + resumeReach;
    }
    if (this.#resume(position)) return;
    this.#cursor = earlier;
    this.#matched = earlier === 0 ? 0 : this.#matchLength(earlier, position + 1);
  }

  /** Continues an interrupted copy if the last two tokens occur shortly after the position at which the copy ended. */
  #resume(position: number): boolean {
    if (this.#brokenAt === 0 || position >= this.#resumeUntil) return false;
    const { tokens } = this.#sequence;
    const end = Math.min(this.#brokenAt + resumeReach, position);
    for (let at = this.#brokenAt + 1; at < end; at++) {
      if (tokens[at] !== tokens[position] || tokens[at - 1] !== tokens[position - 1]) continue;
      this.#cursor = at + 1;
      this.#matched = copyLength;
      return true;
    }
    return false;
  }

  #matchLength(a: number, b: number): number {
    const { tokens } = this.#sequence;
    const longest = Math.min(a, longestMatch);
    let length = 0;
    while (length < longest && tokens[a - 1 - length] === tokens[b - 1 - length]) length++;
    return length;
  }
}

function levelOf(matched: number): number {
  let level = levelStart.length - 1;
  while (level > 0 && matched < (levelStart[level] as number)) level--;
  return level;
}
