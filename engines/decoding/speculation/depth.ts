// Draft depth: chooses the number of tokens to draft for each sequence in the next step, so that the whole batch has
// the most expected tokens per millisecond. The number is 0 if plain decoding is better. This module has no side
// effects.
import type { StepTimeModel } from "../scheduler/step-time-model.ts";

export interface DraftSource {
  /** Chance that token `position` (from 0) of the draft is right, provided that all tokens before it are right. */
  chance(position: number): number;
}

/**
 * Minimum ratio of the expected token rate with drafts to the rate of plain decoding. The ratio is above 1, because
 * estimates may be wrong.
 */
const worthwhile = 1.1;
/** Minimum chance that a drafted token will be used. Tokens with a lower chance are not drafted. */
const leastGain = 0.02;
/**
 * Maximum number of decode tokens of a step, as a multiple of the largest number in recent steps. The number is
 * limited, because the time of larger steps is unknown.
 */
const growth = 2;

interface DepthLimits {
  readonly maxSequences: number;
  /** Maximum number of tokens of a draft. */
  readonly maxDepth: number;
  /** Maximum number of decode tokens of a step, drafts included. */
  readonly maxDecodeTokens: number;
}

export class DepthPlan {
  /** The chosen depth (number of tokens to draft) of each sequence, in the order of add(). */
  readonly depths: Int32Array;
  readonly #stepTimes: StepTimeModel;
  /** Time to draft one token for each of n sequences with a drafter that runs a model, in ms. */
  readonly #draftingMs: (sequences: number) => number;
  readonly #limits: DepthLimits;
  #count = 0;
  readonly #rooms: Int32Array;
  readonly #isCostly: Uint8Array;
  /**
   * At index i * maxDepth + p: chance that all draft tokens of sequence i up to and including position p are right.
   * This chance is the expected number of tokens gained from drafting position p.
   */
  readonly #gains: Float64Array;
  /** Index of the sequence of each pick. Each pick adds one token to the draft of a sequence. */
  readonly #picks: Int32Array;
  /** By position in the draft: the number of sequences for which a model drafts a token at that position. */
  readonly #costlyAt: Int32Array;

  constructor(cost: StepTimeModel, limits: DepthLimits, draftingMs: (sequences: number) => number) {
    this.#stepTimes = cost;
    this.#limits = limits;
    this.#draftingMs = draftingMs;
    this.depths = new Int32Array(limits.maxSequences);
    this.#rooms = new Int32Array(limits.maxSequences);
    this.#isCostly = new Uint8Array(limits.maxSequences);
    this.#gains = new Float64Array(limits.maxSequences * limits.maxDepth);
    this.#picks = new Int32Array(limits.maxDecodeTokens);
    this.#costlyAt = new Int32Array(limits.maxDepth);
  }

  clear(): void {
    this.#count = 0;
  }

  /** Adds a sequence with room for `room` drafted tokens. `isCostly`: a model must run to draft them. */
  add(source: DraftSource, room: number, isCostly: boolean): void {
    const { maxDepth } = this.#limits;
    const index = this.#count++;
    const depth = Math.min(room, maxDepth);
    this.#rooms[index] = depth;
    this.#isCostly[index] = isCostly ? 1 : 0;
    let gain = 1;
    for (let position = 0; position < depth; position++) {
      gain *= source.chance(position);
      this.#gains[index * maxDepth + position] = gain;
    }
  }

  /**
   * Chooses the depths for a step of `decodes` sequences, including the added ones. The gains of a sequence decrease
   * with the position. So adding the token with the largest gain each time gives the best batch of each size.
   */
  choose(decodes: number): void {
    this.depths.fill(0, 0, this.#count);
    this.#costlyAt.fill(0);
    const plainMs = this.#stepTimes.decodeMs(decodes);
    if (plainMs === 0) return;
    const most = Math.min(this.#limits.maxDecodeTokens, growth * Math.max(this.#stepTimes.mostDecodeTokens, decodes));
    let bestRate = (decodes / plainMs) * worthwhile;
    let bestPicks = 0;
    let expected = decodes;
    let draftingMs = 0;
    let picks = 0;
    while (decodes + picks < most) {
      const index = this.#largestGain();
      if (index < 0) break;
      expected += this.#gainOfNext(index);
      draftingMs += this.#takeNext(index);
      this.#picks[picks++] = index;
      const rate = expected / (this.#stepTimes.decodeMs(decodes + picks) + draftingMs);
      if (rate <= bestRate) continue;
      bestRate = rate;
      bestPicks = picks;
    }
    while (picks > bestPicks) this.#shorten(this.#picks[--picks] as number);
  }

  /** Returns the index of the sequence that gains most from one more drafted token; -1 if none gains enough. */
  #largestGain(): number {
    let largest = leastGain;
    let found = -1;
    for (let index = 0; index < this.#count; index++) {
      if ((this.depths[index] as number) >= (this.#rooms[index] as number)) continue;
      const gain = this.#gainOfNext(index);
      if (gain < largest) continue;
      largest = gain;
      found = index;
    }
    return found;
  }

  #gainOfNext(index: number): number {
    return this.#gains[index * this.#limits.maxDepth + (this.depths[index] as number)] as number;
  }

  /** Adds one token to the draft of a sequence. Returns the time to draft it, without the verifying step, in ms. */
  #takeNext(index: number): number {
    const position = this.depths[index] as number;
    this.depths[index] = position + 1;
    if (this.#isCostly[index] === 0) return 0;
    const others = this.#costlyAt[position] as number;
    this.#costlyAt[position] = others + 1;
    return this.#draftingMs(others + 1) - this.#draftingMs(others);
  }

  #shorten(index: number): void {
    this.depths[index] = (this.depths[index] as number) - 1;
  }
}
