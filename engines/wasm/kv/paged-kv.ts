// Paged KV cache of a wasm model, as used by the scheduler. Running sequences and saved copies share one pool of pages.
// The class combines the page table (owners of pages) and the page memory (contents). Called between steps, and by the
// model at the start of a step.
import assert from "node:assert/strict";
import { type PageTable, SavedPages } from "../../decoding/kv/page-table.ts";
import type { KvCache, SavedKv } from "../../engine.ts";
import type { PageMemory } from "./page-memory.ts";

export class PagedKv implements KvCache {
  readonly layout: string;
  readonly #table: PageTable;
  readonly #memory: PageMemory;

  constructor(table: PageTable, memory: PageMemory, layout: string) {
    this.#table = table;
    this.#memory = memory;
    this.layout = layout;
  }

  get freeBlocks(): number {
    return this.#table.freeBlocks;
  }

  /** Returns the KV page of each block of tokens of a slot (a running sequence). */
  pages(slot: number): Int32Array {
    return this.#table.pages(slot);
  }

  reserve(slot: number, tokens: number): boolean {
    const isReserved = this.#table.reserve(slot, tokens);
    this.#makeCopies();
    return isReserved;
  }

  /**
   * Prepares a step that writes tokens `start` to `end` (exclusive) of a slot. Tokens before position `settled` will
   * not be replaced later. Returns false if there are too few free pages.
   */
  write(slot: number, start: number, end: number, settled: number): boolean {
    const isWritable = this.#table.write(slot, start, end, settled);
    this.#makeCopies();
    return isWritable;
  }

  release(slot: number): void {
    this.#table.release(slot);
  }

  copyPrefix(from: number, to: number, tokens: number): void {
    this.#table.copyPrefix(from, to, tokens);
  }

  save(slot: number, tokens?: number): SavedPages {
    return this.#table.save(slot, tokens);
  }

  drop(saved: SavedKv): void {
    this.#table.drop(ownPages(saved));
  }

  restore(slot: number, saved: SavedKv, tokens: number): void {
    this.#table.restore(slot, ownPages(saved), tokens);
  }

  export(saved: SavedKv): Uint8Array {
    return this.#memory.read(ownPages(saved).pages);
  }

  import(bytes: Uint8Array, tokens: number): SavedPages | null {
    const saved = this.#table.take(tokens);
    if (saved === null) return null;
    const expected = saved.pages.length * this.#memory.pageBytes;
    assert.ok(bytes.length >= expected, `${tokens} tokens take ${expected} bytes of KV, got ${bytes.length}`);
    this.#memory.write(saved.pages, bytes);
    return saved;
  }

  /**
   * Makes the page copies that the page table has requested. Pages are not written between steps, so a shared page
   * still has the same content as at the time of the request.
   */
  #makeCopies(): void {
    const { copies } = this.#table;
    if (copies.length === 0) return;
    for (const copy of copies) this.#memory.copy(copy);
    this.#table.clearCopies();
  }
}

function ownPages(saved: SavedKv): SavedPages {
  assert.ok(saved instanceof SavedPages, "a KV copy of another engine");
  return saved;
}
