// All-gather between compute threads. A slab is the block of memory with one thread's results. Each thread writes its
// slab to a shared buffer, waits at a barrier, and then copies the slabs of the other threads into its own memory. The
// buffer has two halves, which are used alternately: a fast thread writes to one half while a slow thread still reads
// the other. Therefore one barrier per call is enough.
import type { ThreadGroup } from "./thread-group.ts";

/** Addresses of the slabs in each thread's memory: one slab per thread, from address `slabs` on, `slabBytes` apart. */
interface Slabs {
  readonly slabs: number;
  readonly slabBytes: number;
}

export class AllGather {
  readonly #group: ThreadGroup;
  readonly #at: Slabs;
  readonly #bytes: Uint8Array;
  readonly #buffer: Uint8Array;
  #half = 0;

  static bufferBytes(threads: number, slabBytes: number): number {
    return threads === 1 ? 0 : 2 * threads * slabBytes;
  }

  constructor(group: ThreadGroup, at: Slabs, bytes: Uint8Array, gatherBuffer: SharedArrayBuffer) {
    this.#group = group;
    this.#at = at;
    this.#bytes = bytes;
    this.#buffer = new Uint8Array(gatherBuffer);
  }

  /**
   * Exchanges slabs. This thread sends the first bytesOf(own index) bytes of its slab. It receives the first bytesOf(t)
   * bytes of the slab of every other thread t.
   */
  slabs(bytesOf: (thread: number) => number): void {
    const { index, size } = this.#group;
    if (size === 1) return;
    const { slabs, slabBytes } = this.#at;
    const half = this.#half * size * slabBytes;
    this.#half ^= 1;
    const own = index * slabBytes;
    copyBytes(this.#bytes, slabs + own, this.#buffer, half + own, bytesOf(index));
    this.#group.barrier();
    for (let thread = 0; thread < size; thread++) {
      if (thread === index) continue;
      const offset = thread * slabBytes;
      copyBytes(this.#buffer, half + offset, this.#bytes, slabs + offset, bytesOf(thread));
    }
  }

  /**
   * Exchanges `count` rows of `rowBytes` bytes at address `at`. This thread sends the rows for which isOwn() is true,
   * and receives all other rows.
   */
  rows(at: number, count: number, rowBytes: number, isOwn: (row: number) => boolean): void {
    const { size } = this.#group;
    if (size === 1) return;
    const half = this.#half * size * this.#at.slabBytes;
    this.#half ^= 1;
    for (let row = 0; row < count; row++) {
      const offset = row * rowBytes;
      if (isOwn(row)) copyBytes(this.#bytes, at + offset, this.#buffer, half + offset, rowBytes);
    }
    this.#group.barrier();
    copyBytes(this.#buffer, half, this.#bytes, at, count * rowBytes);
  }
}

function copyBytes(source: Uint8Array, from: number, target: Uint8Array, to: number, count: number): void {
  target.set(source.subarray(from, from + count), to);
}
