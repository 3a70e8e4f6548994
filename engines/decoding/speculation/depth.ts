// Depth of drafts: the number of tokens to draft for each sequence of the next step, so that the whole batch yields the
// most expected tokens per millisecond; 0 if plain decoding yields more. Pure.
import type { StepTimeModel } from "../scheduler/step-time-model.ts";

/** A source of drafts. */
export interface DraftSource {
  /** Chance that the draft's token `position` (from 0) is right if all before it are. */
  chance(position: number): number;
}

/** Least expected gain over plain decoding, because estimates err. */
const worthwhile = 1.1;
/** A token with a lower chance of use is never drafted. */
const leastGain = 0.02;
/** Largest ratio of a step's decode tokens to those of measured steps: the time of larger steps is unknown. */
const growth = 2;

interface DepthLimits {
  readonly maxSequences: number;
  /** Most tokens of a draft. */
  readonly maxDepth: number;
  /** Most decode tokens of a step, drafts included. */
  readonly maxDecodeTokens: number;
}

export class DepthPlan {
  /** The chosen depth of each sequence, in the order of add(). */
  readonly depths: Int32Array;
  readonly #stepTimes: StepTimeModel;
  /** Time to draft one token for each of n sequences, if a model has to run for it. */
  readonly #draftingMs: (sequences: number) => number;
  readonly #limits: DepthLimits;
  #count = 0;
  readonly #rooms: Int32Array;
  readonly #isCostly: Uint8Array;
  /** Expected tokens from position p of sequence i, at i * maxDepth + p: the chance that all up to there are right. */
  readonly #gains: Float64Array;
  /** Sequences in the order in which their drafts grew by a token. */
  readonly #picks: Int32Array;
  /** By position: the number of sequences for which a model drafts a token there. */
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

  /** Adds a sequence that can have up to `room` drafted tokens; `isCostly` if a model has to run for them. */
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
   * Chooses the depths of a step of `decodes` sequences, the added ones included. The gains of one sequence fall with
   * the position, so the best batch of each size always takes the largest remaining gain.
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

  /** The sequence that gains most by another token, or -1. */
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

  /** Drafts another token of a sequence. Returns the time for that, beside the step itself. */
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
