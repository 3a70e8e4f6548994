// Row order: the rows of a step sorted by native sequence id, because llama.cpp computes rows with consecutive ids in
// one pass. arrange() sorts the rows of each step.
import type { Batch } from "../batch.ts";
import type { SlotKv } from "./kv/slot-kv.ts";

export class RowOrder {
  /** Rows of the batch, in ascending order of native id; only the first `count` are valid. */
  readonly rows: Int32Array;
  /** Native sequence id of each row in `rows`. */
  readonly ids: Int32Array;
  count = 0;
  /** Row of each native sequence id; -1 = none. Between calls of arrange(), all entries are -1. */
  readonly #rowOfId: Int32Array;

  constructor(maxSequences: number) {
    this.rows = new Int32Array(maxSequences);
    this.ids = new Int32Array(maxSequences);
    this.#rowOfId = new Int32Array(maxSequences).fill(-1);
  }

  arrange(batch: Batch, slots: SlotKv): void {
    this.count = 0;
    let lowest = this.#rowOfId.length;
    let highest = -1;
    for (let row = 0; row < batch.rowCount; row++) {
      const id = slots.idOf(batch.slot[row] as number);
      this.#rowOfId[id] = row;
      lowest = Math.min(lowest, id);
      highest = Math.max(highest, id);
    }
    for (let id = lowest; id <= highest; id++) {
      const row = this.#rowOfId[id] as number;
      if (row < 0) continue;
      this.#rowOfId[id] = -1;
      this.rows[this.count] = row;
      this.ids[this.count++] = id;
    }
  }
}
