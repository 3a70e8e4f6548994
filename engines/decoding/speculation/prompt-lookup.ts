// Owns drafting from one sequence's own past: where its last tokens occurred before, the same ones may follow again. It
// costs next to nothing, so it guesses at every token, drafted or not, and learns from each how far to trust itself.
// Speculation asks it; it never runs a model.
import type { Sequence } from "../scheduler/sequence.ts";
import { Acceptance, SharedAcceptance } from "./acceptance.ts";
import { TokenIndex } from "./token-index.ts";

/** Levels of acceptance: level i is for matches of levelStart[i] tokens and more. */
const levelStart = [2, 3, 4, 5, 7, 9, 13, 17, 33];
const priors = [0.3, 0.45, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.96];
/** Tokens a new match is compared over: beyond, it makes no difference. */
const longestMatch = 40;
/** A copy that breaks off after so many tokens is likely to go on a little further in its source: text that is edited. */
const copyLength = 8;
/** How far behind the break it is looked for, and for how many tokens. */
const resumeReach = 24;

/** What all sequences of a model have shown of their lookups. */
export function sharedLookupAcceptance(): SharedAcceptance {
  return new SharedAcceptance(priors);
}

export class PromptLookup {
  readonly #sequence: Sequence;
  readonly #index: TokenIndex;
  readonly #acceptance: Acceptance;
  /** Position of the token that is expected next; 0 = none is. Below `total`: it may be the last one's own. */
  #cursor = 0;
  /** Tokens before the cursor that are the same as the sequence's last. */
  #matched = 0;
  /** Where a long copy broke off, and the position up to which its continuation is looked for; 0 = nowhere. */
  #brokenAt = 0;
  #resumeUntil = 0;

  constructor(sequence: Sequence, shared: SharedAcceptance) {
    this.#sequence = sequence;
    this.#index = new TokenIndex(sequence.tokens, Math.min(sequence.total + resumeReach, sequence.tokens.length));
    this.#acceptance = new Acceptance(shared);
  }

  /** Catches up with the sequence by at most `budget` tokens. Returns how many they were. */
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

  /** Chance that the draft's token `position` (from 0) is right where those before it are. */
  chance(position: number): number {
    return this.#acceptance.chance(levelOf(this.#matched + position));
  }

  /** Writes the first `count` tokens of the draft. One that catches up with the sequence's end goes on in itself. */
  write(draft: Int32Array, count: number): void {
    const { tokens, total } = this.#sequence;
    const known = Math.min(count, total - this.#cursor);
    for (let i = 0; i < known; i++) draft[i] = tokens[this.#cursor + i] as number;
    for (let i = known; i < count; i++) draft[i] = draft[i - known] as number;
  }

  /** Takes the next token of the sequence in: was it the expected one, and what is expected behind it? */
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

  /** Goes on with the copy that broke off, if the last two tokens are found a little behind the break. */
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
