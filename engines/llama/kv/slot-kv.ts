// SlotKv: interface between the model and the two memory layouts of its sequences in llama.cpp: one stream per sequence
// (kv-streams.ts), or one pool of cells (kv-unified.ts).
import type { Batch } from "../../batch.ts";
import type { KvCache } from "../../engine.ts";

export interface SlotKv extends KvCache {
  /** Prepares a step: gives each slot of the batch a native sequence, and drops the tokens that its row replaces. */
  prepare(batch: Batch): void;
  /** Records that the rows of the batch have been fed. */
  commit(batch: Batch): void;
  /** Returns the native sequence id of a slot, or -1. */
  idOf(slot: number): number;
  /**
   * Returns the position at which a filler token may be fed to a native sequence. Returns -1 if a filler would be
   * useless or harmful. Fillers keep the sequence ids of a pass dense, and are removed after the pass.
   */
  fillerPosition(id: number): number;
}
