// Drafter: the interface between the policy of speculative decoding and a model that drafts: a smaller one, or the
// model's own MTP heads. (Prompt lookup needs no model: prompt-lookup.ts.)
import type { Sequence } from "../scheduler/sequence.ts";

export interface Drafter {
  /** Most tokens of a draft; Infinity: no bound. */
  readonly maxDepth: number;
  /** Time to draft one token for each of `sequences`; 0 while unknown, and for no sequences. */
  tokenMs(sequences: number): number;
  /** Number of tokens of a sequence that have to be read before its next one can be drafted; Infinity: never. */
  backlog(sequence: Sequence): number;
  /**
   * Drafts up to `depths[i]` tokens behind the last token of `sequences[i]`, which the model has not seen yet: fills
   * its `draft`, which has room for them, and `draftCount`. 0 if there is nothing to draft, or a backlog that takes
   * longer than `patienceMs` to read: each call then reads a part of it.
   */
  draft(sequences: readonly Sequence[], depths: Int32Array, patienceMs: number): void;
  /** The first `accepted` tokens of a sequence's last draft were right. */
  observe(sequence: Sequence, accepted: number): void;
  /** A sequence has ended or lost its slot. */
  forget(sequence: Sequence): void;
  dispose(): void;
}
