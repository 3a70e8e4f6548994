// Prompt lookup: drafts from one sequence's own past: if its last tokens occurred before, the same tokens may follow
// again. It costs next to nothing, so it guesses every token, drafted or not, and learns from each how reliable it is.
// Used by Speculation; it runs no model.
import type { Sequence } from "../scheduler/sequence.ts";
import { Acceptance, SharedAcceptance } from "./acceptance.ts";
import { TokenIndex } from "./token-index.ts";

/** Levels of acceptance: level i is for matches of levelStart[i] tokens and more. */
const levelStart = [2, 3, 4, 5, 7, 9, 13, 17, 33];
const priors = [0.3, 0.45, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.96];
/** Most tokens over which a new match is compared; longer matches are not more reliable. */
const longestMatch = 40;
/**
 * A copy that breaks off after this number of tokens probably continues a little further in its source: edited text.
 */
const copyLength = 8;
/** How far behind the break the continuation is searched, and for how many tokens. */
const resumeReach = 24;

/** The record of all sequences' lookups of a model. */
export function sharedLookupAcceptance(): SharedAcceptance {
  return new SharedAcceptance(priors);
}

export class PromptLookup {
  readonly #sequence: Sequence;
  readonly #index: TokenIndex;
  readonly #acceptance: Acceptance;
  /** Position of the expected next token; 0: none. Below `total`: it may be the last token's own position. */
  #cursor = 0;
  /** Number of tokens before the cursor that equal the sequence's last ones. */
  #matched = 0;
  /** Position where a long copy broke off, and the position up to which its continuation is searched; 0: none. */
  #brokenAt = 0;
  #resumeUntil = 0;

  constructor(sequence: Sequence, shared: SharedAcceptance) {
    this.#sequence = sequence;
    this.#index = new TokenIndex(sequence.tokens, Math.min(sequence.total + resumeReach, sequence.tokens.length));
    this.#acceptance = new Acceptance(shared);
  }

  /** Reads at most `budget` new tokens of the sequence. Returns their number. */
  follow(budget: number): number {
    const { total } = this.#sequence;
    const count = Math.min(total - this.#index.length, budget);
    for (let i = 0; i < count; i++) this.#take();
    return count;
  }

  /** Whether it has a draft behind the sequence's last token. */
  get hasDraft(): boolean {
    return this.#cursor > 0 && this.#index.length === this.#sequence.total;
  }

  /** Chance that the draft's token `position` (from 0) is right if all before it are. */
  chance(position: number): number {
    return this.#acceptance.chance(levelOf(this.#matched + position));
  }

  /** Writes the first `count` tokens of the draft. A draft that reaches the sequence's end continues in itself. */
  write(draft: Int32Array, count: number): void {
    const { tokens, total } = this.#sequence;
    const known = Math.min(count, total - this.#cursor);
    for (let i = 0; i < known; i++) draft[i] = tokens[this.#cursor + i] as number;
    for (let i = known; i < count; i++) draft[i] = draft[i - known] as number;
  }

  /** Reads the sequence's next token: compares it with the expected one and finds the next expectation. */
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

  /** Continues the copy that broke off, if the last two tokens occur a little behind the break. */
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
