// Owns the interface between the policy of speculative decoding and what has to be run to draft: a smaller model, or the
// model's own prediction heads. (A sequence's own past costs nothing and is prompt-lookup.ts's.)
import type { Sequence } from "../scheduler/sequence.ts";

export interface Drafter {
  /** Most tokens of a draft; Infinity where there is no such bound. */
  readonly maxDepth: number;
  /** What drafting one token for each of so many sequences takes; 0 while unknown, and for no sequences. */
  tokenMs(sequences: number): number;
  /** Tokens of a sequence that have to be read before its next one can be drafted; Infinity where it never can. */
  backlog(sequence: Sequence): number;
  /**
   * Drafts up to `depths[i]` tokens behind the last token of `sequences[i]`, which the model has yet to see: fills its
   * `draft`, which has room for them, and `draftCount`. 0 where it has nothing to say, or has a backlog that takes longer
   * than `patienceMs` to read: each call then reads a part of it.
   */
  draft(sequences: readonly Sequence[], depths: Int32Array, patienceMs: number): void;
  /** Of the last draft of a sequence the first `accepted` tokens were right. */
  observe(sequence: Sequence, accepted: number): void;
  /** A sequence has ended or lost its slot. */
  forget(sequence: Sequence): void;
  dispose(): void;
}
