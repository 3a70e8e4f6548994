// Owns the seam between the model and the two ways its sequences lie in llama.cpp's memory: each with a stream of its own
// (kv-streams.ts), or all in one pool of cells (kv-unified.ts).
import type { Batch } from "../../batch.ts";
import type { KvCache } from "../../engine.ts";

export interface SlotKv extends KvCache {
  /** Makes the rows of a batch ready to be fed: each slot has a native sequence, less what its row replaces. */
  prepare(batch: Batch): void;
  /** Notes that a batch has been fed. */
  commit(batch: Batch): void;
  /** Native sequence id of a slot, or -1. */
  idOf(slot: number): number;
  /**
   * Position at which a token that means nothing may be fed to a native sequence, and removed after the pass, so that no
   * id is missing among those of a pass; -1 where that is of no use, or would do harm.
   */
  fillerPosition(id: number): number;
}
