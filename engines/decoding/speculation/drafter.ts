// Drafter: the interface between speculative decoding and a model that drafts, which is a smaller model or the model's
// own MTP heads. Prompt lookup (prompt-lookup.ts) needs no model and does not implement this interface.
import type { Sequence } from "../scheduler/sequence.ts";

export interface Drafter {
  /** Maximum number of tokens of a draft; Infinity: no limit. */
  readonly maxDepth: number;
  /** Time to draft one token for each of `sequences` sequences, in ms; 0 if the time is unknown or `sequences` is 0. */
  tokenMs(sequences: number): number;
  /**
   * Number of tokens of a sequence that the drafter must read before it can draft the next token; Infinity: it
   * cannot draft for this sequence.
   */
  backlog(sequence: Sequence): number;
  /**
   * Drafts up to `depths[i]` tokens after the last token of `sequences[i]`, which the target model has not processed
   * yet. Writes the drafted tokens to the sequence's `draft`, which has enough room, and their number to `draftCount`.
   * The number is 0 if there is nothing to draft, or if reading the backlog takes longer than `patienceMs`; each call
   * then reads a part of the backlog.
   */
  draft(sequences: readonly Sequence[], depths: Int32Array, patienceMs: number): void;
  /** Reports that the first `accepted` tokens of a sequence's last draft were right. */
  observe(sequence: Sequence, accepted: number): void;
  /** Forgets a sequence that has ended or lost its slot. */
  forget(sequence: Sequence): void;
  dispose(): void;
}
