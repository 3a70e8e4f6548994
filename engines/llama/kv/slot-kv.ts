// SlotKv: interface between the model and the two layouts of its sequences in llama.cpp's memory: a stream each
// (kv-streams.ts), or one pool of cells (kv-unified.ts).
import type { Batch } from "../../batch.ts";
import type { KvCache } from "../../engine.ts";

export interface SlotKv extends KvCache {
  /** Prepares a batch: gives each slot a native sequence, and drops the tokens that its row replaces. */
  prepare(batch: Batch): void;
  /** Records that the batch was fed. */
  commit(batch: Batch): void;
  /** Native sequence id of a slot, or -1. */
  idOf(slot: number): number;
  /**
   * Position at which a filler token may be fed to a native sequence, and removed after the pass, to keep the ids of
   * the pass dense; -1 if a filler is useless or harmful there.
   */
  fillerPosition(id: number): number;
}
