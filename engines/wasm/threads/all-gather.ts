// All-gather between compute threads: each writes its slab to a shared buffer, all wait at a barrier, and each copies
// the other slabs into its own memory. The buffer has two halves, used alternately: a fast thread writes to one while a
// slow thread still reads the other, so one barrier per call is enough.
import type { ThreadGroup } from "./thread-group.ts";

/** Slabs in each thread's memory, one per thread, at `slabs`, `slabBytes` apart. */
interface Slabs {
  readonly slabs: number;
  readonly slabBytes: number;
}

export class AllGather {
  readonly #team: ThreadGroup;
  readonly #at: Slabs;
  readonly #bytes: Uint8Array;
  readonly #bus: Uint8Array;
  #half = 0;

  static busBytes(threads: number, slabBytes: number): number {
    return 2 * threads * slabBytes;
  }

  constructor(team: ThreadGroup, at: Slabs, bytes: Uint8Array, bus: SharedArrayBuffer) {
    this.#team = team;
    this.#at = at;
    this.#bytes = bytes;
    this.#bus = new Uint8Array(bus);
  }

  /** Shares the first bytesOf(thread) bytes of every thread's slab. */
  slabs(bytesOf: (thread: number) => number): void {
    const { index, size } = this.#team;
    if (size === 1) return;
    const { slabs, slabBytes } = this.#at;
    const half = this.#half * size * slabBytes;
    this.#half ^= 1;
    const own = index * slabBytes;
    copyBytes(this.#bytes, slabs + own, this.#bus, half + own, bytesOf(index));
    this.#team.barrier();
    for (let thread = 0; thread < size; thread++) {
      if (thread === index) continue;
      const offset = thread * slabBytes;
      copyBytes(this.#bus, half + offset, this.#bytes, slabs + offset, bytesOf(thread));
    }
  }

  /** Shares `count` rows of `rowBytes` bytes at `at`; this thread has filled the rows for which isOwn() is true. */
  rows(at: number, count: number, rowBytes: number, isOwn: (row: number) => boolean): void {
    const { size } = this.#team;
    if (size === 1) return;
    const half = this.#half * size * this.#at.slabBytes;
    this.#half ^= 1;
    for (let row = 0; row < count; row++) {
      const offset = row * rowBytes;
      if (isOwn(row)) copyBytes(this.#bytes, at + offset, this.#bus, half + offset, rowBytes);
    }
    this.#team.barrier();
    copyBytes(this.#bus, half, this.#bytes, at, count * rowBytes);
  }
}

function copyBytes(source: Uint8Array, from: number, target: Uint8Array, to: number, count: number): void {
  target.set(source.subarray(from, from + count), to);
}
