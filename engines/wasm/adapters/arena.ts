// Adapter arena: allocates blocks for adapters in the memories of the compute threads. A block has the same address in
// all these memories, so one list of free blocks is enough. Allocation is first fit, and adjacent free blocks are
// merged. This class only computes addresses; its caller enlarges the memories.

interface Range {
  readonly from: number;
  readonly to: number;
}

export class AdapterArena {
  readonly #from: number;
  readonly #to: number;
  /** Free blocks in ascending order; no two are adjacent. */
  readonly #free: Range[];
  #usedBytes = 0;

  constructor(from: number, to: number) {
    this.#from = from;
    this.#to = to;
    this.#free = from < to ? [{ from, to }] : [];
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Bytes of the largest free block. */
  get longestFree(): number {
    return this.#free.reduce((longest, { from, to }) => Math.max(longest, to - from), 0);
  }

  /** Allocates a block of `bytes` bytes and returns its address; null if no free block is large enough. */
  take(bytes: number): number | null {
    const index = this.#free.findIndex(({ from, to }) => to - from >= bytes);
    const range = this.#free[index];
    if (!range) return null;
    const { from, to } = range;
    this.#free.splice(index, 1, ...(to - from > bytes ? [{ from: from + bytes, to }] : []));
    this.#usedBytes += bytes;
    return from;
  }

  /** Frees a block that take() returned. */
  give(address: number, bytes: number): void {
    const next = this.#free.findIndex(({ from }) => from > address);
    const at = next < 0 ? this.#free.length : next;
    const before = this.#free[at - 1];
    const after = this.#free[at];
    const joinsBefore = before?.to === address;
    const joinsAfter = after?.from === address + bytes;
    const joined = {
      from: joinsBefore ? before.from : address,
      to: joinsAfter ? after.to : address + bytes,
    };
    this.#free.splice(joinsBefore ? at - 1 : at, Number(joinsBefore) + Number(joinsAfter), joined);
    this.#usedBytes -= bytes;
  }

  /** Throws if free and used bytes do not add up to the arena's size. */
  checkIntegrity(): void {
    let free = 0;
    let end = this.#from - 1;
    for (const { from, to } of this.#free) {
      if (from <= end || to <= from || to > this.#to) throw new Error(`free block ${from}..${to} after ${end}`);
      free += to - from;
      end = to;
    }
    if (free + this.#usedBytes !== Math.max(this.#to - this.#from, 0)) throw new Error("bytes of the arena are lost");
  }
}
