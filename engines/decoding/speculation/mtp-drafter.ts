// MtpDrafter: drafts with the model's own multi-token-prediction (MTP) heads, which process all tokens that the model
// processes. Called only by Speculation.
import type { MtpHeads } from "../../engine.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { StepTimeModel } from "../scheduler/step-time-model.ts";
import type { Drafter } from "./drafter.ts";

/** Picks the token that follows a sequence and its draft so far, from row `row` of the heads' logits; -1: none. */
export type ChooseDraft = (sequence: Sequence, logits: Float32Array, row: number) => number;

export interface MtpDrafterOptions {
  readonly maxDepth: number;
  readonly maxSequences: number;
  readonly choose: ChooseDraft;
  /** Returns milliseconds; used to time the heads. */
  readonly now: () => number;
}

export class MtpDrafter implements Drafter {
  readonly maxDepth: number;
  readonly #heads: MtpHeads;
  readonly #stepTimes: StepTimeModel;
  readonly #choose: ChooseDraft;
  readonly #now: () => number;

  constructor(heads: MtpHeads, { maxDepth, maxSequences, choose, now }: MtpDrafterOptions) {
    this.maxDepth = maxDepth;
    this.#heads = heads;
    this.#stepTimes = new StepTimeModel(maxSequences, { decodeSlowdown: 1, maxStepMs: 0 });
    this.#choose = choose;
    this.#now = now;
  }

  tokenMs(sequences: number): number {
    return this.#stepTimes.decodeMs(sequences);
  }

  backlog({ slot, total }: Sequence): number {
    return this.#heads.follows(slot, total) ? 1 : Infinity;
  }

  draft(sequences: readonly Sequence[], depths: Int32Array): void {
    const started = this.#now();
    this.#heads.propose(sequences, depths, this.#choose);
    let passes = 0;
    for (const { draftCount } of sequences) passes = Math.max(passes, draftCount);
    if (passes > 0) this.#stepTimes.observe(sequences.length, 0, (this.#now() - started) / passes);
  }

  observe(): void {}

  forget(): void {}

  dispose(): void {}
}

/** Returns a function that picks the likeliest token of a vocabulary of this size. */
export function chooseLikeliest(vocabSize: number): ChooseDraft {
  return (_sequence, logits, row) => {
    const start = row * vocabSize;
    let best = start;
    for (let i = start + 1; i < start + vocabSize; i++) {
      if ((logits[i] as number) > (logits[best] as number)) best = i;
    }
    return best - start;
  };
}
