// Page memory: reads and writes the contents of KV pages between passes. The leader copies, exports and imports pages
// in the memories of all threads, which are idle at that time. The start of the next pass makes the writes visible to
// all threads.
import type { PageCopy } from "../../decoding/kv/page-table.ts";

/**
 * Location of one thread's pages in its memory. All pages of a layer are adjacent, and the layers follow one another.
 */
export interface ThreadPages {
  readonly memory: SharedArrayBuffer;
  readonly kv: number;
  readonly kvPageBytes: number;
  /** Number of bytes from the start of one layer's pages to the start of the next layer's pages. */
  readonly kvLayerBytes: number;
}

export class PageMemory {
  readonly #layers: number;
  /** Pages of each thread. */
  readonly #pages: readonly ThreadPages[];
  readonly #bytes: readonly Uint8Array[];

  constructor(layers: number, pages: readonly ThreadPages[]) {
    this.#layers = layers;
    this.#pages = pages;
    this.#bytes = pages.map(({ memory }) => new Uint8Array(memory));
  }

  /** Bytes of a page, summed over all layers; the same in every thread. */
  get pageBytes(): number {
    return this.#layers * this.#of(0).kvPageBytes;
  }

  copy({ thread, from, to }: PageCopy): void {
    const { kvPageBytes } = this.#of(thread);
    const bytes = this.#bytesOf(thread);
    for (let layer = 0; layer < this.#layers; layer++) {
      const source = this.#address(thread, from, layer);
      bytes.copyWithin(this.#address(thread, to, layer), source, source + kvPageBytes);
    }
  }

  /** Returns the contents of a sequence's pages, block by block. The bytes do not depend on the number of threads. */
  read(pages: Int32Array): Uint8Array {
    const out = new Uint8Array(pages.length * this.pageBytes);
    this.#forEachPart(pages, (memory, offset, from, to) => out.set(memory.subarray(from, to), offset));
    return out;
  }

  /** Fills pages with content that read() returned; excess bytes of `content` are ignored. */
  write(pages: Int32Array, content: Uint8Array): void {
    this.#forEachPart(pages, (memory, offset, from, to) => {
      memory.set(content.subarray(offset, offset + to - from), from);
    });
  }

  /**
   * Calls `visit` for every layer of every page. `memory` is the memory of the page's thread. Its bytes `from` to `to`
   * are at `offset` in the content that read() returns.
   */
  #forEachPart(pages: Int32Array, visit: (memory: Uint8Array, offset: number, from: number, to: number) => void): void {
    let offset = 0;
    for (const [block, page] of pages.entries()) {
      const thread = block % this.#pages.length;
      const { kvPageBytes } = this.#of(thread);
      for (let layer = 0; layer < this.#layers; layer++) {
        const from = this.#address(thread, page, layer);
        visit(this.#bytesOf(thread), offset, from, from + kvPageBytes);
        offset += kvPageBytes;
      }
    }
  }

  #address(thread: number, page: number, layer: number): number {
    const { kv, kvPageBytes, kvLayerBytes } = this.#of(thread);
    return kv + layer * kvLayerBytes + page * kvPageBytes;
  }

  #of(thread: number): ThreadPages {
    return this.#pages[thread] as ThreadPages;
  }

  #bytesOf(thread: number): Uint8Array {
    return this.#bytes[thread] as Uint8Array;
  }
}
