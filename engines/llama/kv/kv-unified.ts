// KV cache with one pool of llama.cpp cells for all sequences. Each slot and each saved copy is a native sequence.
// Sharing a prefix copies no cells, because a cell can belong to several sequences. This class reserves whole blocks,
// and a slot never writes to a shared block. llama.cpp allocates single cells, so it never needs more cells than are
// reserved here. If all blocks of a pass are reserved, the pass always finds free cells.
import assert from "node:assert/strict";
import type { Batch } from "../../batch.ts";
import { PageTable, type SavedPages } from "../../decoding/kv/page-table.ts";
import type { Capacity, SavedKv } from "../../engine.ts";
import type { NativeContext } from "../native/native-context.ts";
import type { SlotKv } from "./slot-kv.ts";
import { isState, type StateShape } from "./state-bytes.ts";

export interface UnifiedOptions {
  readonly capacity: Capacity;
  readonly layout: string;
  readonly bytesPerToken: number;
  /** Maximum number of native sequences; see nativeSequences(). */
  readonly maxSequenceIds: number;
}

/** A saved copy: a native sequence that belongs to no slot. */
class SavedSequence {
  readonly id: number;
  readonly pages: SavedPages;

  constructor(id: number, pages: SavedPages) {
    this.id = id;
    this.pages = pages;
  }
}

/**
 * Returns the number of native sequences to open a context for: one per slot, and one for exports. Saved copies use
 * higher ids. llama.cpp can mark cells with any id, but it can read a state only from an id below this number.
 */
export function nativeSequences(maxSequences: number, maxSequenceIds: number): number {
  return Math.min(maxSequences + 1, maxSequenceIds);
}

export class UnifiedKv implements SlotKv {
  readonly layout: string;
  readonly #context: NativeContext;
  readonly #sequenceTokens: number;
  readonly #shape: StateShape;
  readonly #pages: PageTable;
  readonly #exportId: number;
  readonly #spareIds: number[] = [];

  constructor(context: NativeContext, { capacity, layout, bytesPerToken, maxSequenceIds }: UnifiedOptions) {
    const { maxSequences, sequenceTokens, blockTokens, kvBlocks } = capacity;
    this.layout = layout;
    this.#context = context;
    this.#sequenceTokens = sequenceTokens;
    this.#shape = { streams: 1, bytesPerToken, keepsAll: true };
    this.#pages = new PageTable({
      slots: maxSequences,
      sequenceTokens,
      blockTokens,
      threads: 1,
      pagesPerThread: kvBlocks,
    });
    this.#exportId = maxSequences;
    for (let id = maxSequences + 1; id < maxSequenceIds; id++) this.#spareIds.push(id);
  }

  get freeBlocks(): number {
    return this.#pages.freeBlocks;
  }

  idOf(slot: number): number {
    return slot;
  }

  prepare(batch: Batch): void {
    for (let row = 0; row < batch.rowCount; row++) {
      const slot = at(batch.slot, row);
      const start = at(batch.position, row);
      const end = start + at(batch.length, row);
      if (start < this.#pages.length(slot)) this.#context.remove(slot, start);
      // If a row wants logits of several tokens, the tokens after the first of them may be drafts. Rejected drafts are
      // replaced later, so possible drafts do not count as settled (final).
      const settled = end - Math.max(at(batch.logitsCount, row) - 1, 0);
      assert.ok(this.#pages.write(slot, start, end, settled), `no room was reserved for ${end} tokens of slot ${slot}`);
    }
    // Clears the page table's requests to copy shared pages. Copies are not needed, because llama.cpp uses new cells
    // for the tokens that a slot writes.
    this.#pages.clearCopies();
  }

  commit(): void {}

  fillerPosition(): number {
    return -1;
  }

  reserve(slot: number, tokens: number): boolean {
    return tokens <= this.#sequenceTokens && this.#pages.reserve(slot, tokens);
  }

  release(slot: number): void {
    this.#pages.release(slot);
    this.#context.remove(slot, -1);
  }

  copyPrefix(from: number, to: number, tokens: number): void {
    this.#pages.copyPrefix(from, to, tokens);
    this.#context.share(from, to, tokens);
  }

  save(slot: number, tokens?: number): SavedKv | null {
    const id = this.#spareIds.pop();
    if (id === undefined) return null;
    const pages = this.#pages.save(slot, tokens);
    this.#context.share(slot, id, pages.tokens);
    return new SavedSequence(id, pages);
  }

  drop(saved: SavedKv): void {
    const { id, pages } = ownCopy(saved);
    this.#pages.drop(pages);
    this.#context.remove(id, -1);
    this.#spareIds.push(id);
  }

  restore(slot: number, saved: SavedKv, tokens: number): void {
    const { id, pages } = ownCopy(saved);
    this.#pages.restore(slot, pages, tokens);
    this.#context.share(id, slot, tokens);
  }

  export(saved: SavedKv): Uint8Array {
    const { id, pages } = ownCopy(saved);
    this.#context.share(id, this.#exportId, pages.tokens);
    try {
      const bytes = new Uint8Array(this.#context.stateSize(this.#exportId));
      this.#context.readState(this.#exportId, bytes);
      return bytes;
    } finally {
      this.#context.remove(this.#exportId, -1);
    }
  }

  import(bytes: Uint8Array, tokens: number): SavedKv | null {
    const fits = tokens <= this.#sequenceTokens && isState(bytes, this.#shape, tokens);
    const id = fits ? this.#spareIds.at(-1) : undefined;
    const pages = id === undefined ? null : this.#pages.take(tokens);
    if (id === undefined || pages === null) return null;
    try {
      this.#context.writeState(id, bytes);
    } catch (error) {
      this.#pages.drop(pages);
      throw error;
    }
    this.#spareIds.pop();
    return new SavedSequence(id, pages);
  }
}

function ownCopy(saved: SavedKv): SavedSequence {
  assert.ok(saved instanceof SavedSequence, "the copy comes from another engine");
  return saved;
}

/** Returns an element of a typed array at an index known to be in bounds. */
function at(array: Int32Array, index: number): number {
  return array[index] as number;
}
