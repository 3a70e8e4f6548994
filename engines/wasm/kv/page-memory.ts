// Owns the content of KV pages between passes: the leader copies pages, reads them out and fills them, whichever thread's
// memory they lie in. No thread computes then, and the order of the next pass tells all of them what was written.
import type { PageCopy } from "../../decoding/kv/page-table.ts";

/** Where one thread's pages lie: those of a layer side by side, and one layer behind the other. */
export interface ThreadPages {
  readonly memory: SharedArrayBuffer;
  readonly kv: number;
  readonly kvPageBytes: number;
  /** From one layer's pages to the next's. */
  readonly kvLayerBytes: number;
}

export class PageMemory {
  readonly #layers: number;
  /** By thread. */
  readonly #pages: readonly ThreadPages[];
  readonly #bytes: readonly Uint8Array[];

  constructor(layers: number, pages: readonly ThreadPages[]) {
    this.#layers = layers;
    this.#pages = pages;
    this.#bytes = pages.map(({ memory }) => new Uint8Array(memory));
  }

  /** All layers of a page, the same in every thread. */
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

  /** The content of a sequence's pages, block by block: the same bytes whatever the number of threads. */
  read(pages: Int32Array): Uint8Array {
    const out = new Uint8Array(pages.length * this.pageBytes);
    this.#forEachPart(pages, (memory, offset, from, to) => out.set(memory.subarray(from, to), offset));
    return out;
  }

  /** Fills pages with what read() gave; what `content` has beyond them is left out. */
  write(pages: Int32Array, content: Uint8Array): void {
    this.#forEachPart(pages, (memory, offset, from, to) => {
      memory.set(content.subarray(offset, offset + to - from), from);
    });
  }

  /** Calls back with the memory of every layer of every page, and where its bytes from..to are in the whole content. */
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
