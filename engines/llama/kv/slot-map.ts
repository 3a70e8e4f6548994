// Slot map: the native sequence id of each scheduler slot. llama.cpp splits a batch into separate passes at every gap
// between sequence ids, so ids are kept dense: a slot gets the lowest free id, and `compaction` returns the sequence to
// move into a gap. This class only keeps the mapping; the KV cache moves the data.

export interface Move {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
}

export class SlotMap {
  /** Native id by slot, -1 = none. */
  readonly #idOfSlot: Int32Array;
  /** Slot by native id, -1 = free. */
  readonly #slotOfId: Int32Array;

  constructor(size: number) {
    this.#idOfSlot = new Int32Array(size).fill(-1);
    this.#slotOfId = new Int32Array(size).fill(-1);
  }

  /** Returns the native id of a slot, or -1. */
  idOf(slot: number): number {
    return this.#idOfSlot[slot] ?? -1;
  }

  /** Returns the slot of a native id, or -1. */
  slotOf(id: number): number {
    return this.#slotOfId[id] ?? -1;
  }

  /** Returns the native id of a slot. A slot without an id gets the lowest free one. */
  acquire(slot: number): number {
    const held = this.idOf(slot);
    if (held >= 0) return held;
    const id = this.#slotOfId.indexOf(-1);
    if (id < 0) throw new Error(`no native sequence id is free for slot ${slot}`);
    this.#bind(slot, id);
    return id;
  }

  /** Frees the slot's native id and returns it, or -1. */
  release(slot: number): number {
    const id = this.idOf(slot);
    if (id >= 0) {
      this.#idOfSlot[slot] = -1;
      this.#slotOfId[id] = -1;
    }
    return id;
  }

  /** Returns the move of the highest id into the lowest gap; null if the ids are dense. */
  compaction(): Move | null {
    const to = this.#slotOfId.indexOf(-1);
    if (to < 0) return null;
    for (let from = this.#slotOfId.length - 1; from > to; from--) {
      const slot = this.slotOf(from);
      if (slot >= 0) return { slot, from, to };
    }
    return null;
  }

  /** Records that a move has been carried out. */
  moved(move: Move): void {
    this.#slotOfId[move.from] = -1;
    this.#bind(move.slot, move.to);
  }

  #bind(slot: number, id: number): void {
    this.#idOfSlot[slot] = id;
    this.#slotOfId[id] = slot;
  }
}
