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
import type { SlotPositions } from "./slot-positions.ts";
import { isState, positionsOf, type StateShape } from "./state-bytes.ts";

export interface UnifiedOptions {
  readonly capacity: Capacity;
  readonly layout: string;
  readonly bytesPerToken: number;
  /**
   * Positions of the slots' tokens; null for models without M-RoPE, in which the position of a token is its index in
   * the sequence.
   */
  readonly positions: SlotPositions | null;
  /** Maximum number of native sequences; see nativeSequences(). */
  readonly maxSequenceIds: number;
}

/** A saved copy: a native sequence that belongs to no slot. */
class SavedSequence {
  readonly id: number;
  readonly pages: SavedPages;
  /**
   * Position of each token; null for models without M-RoPE, in which the position of a token is its index in the
   * sequence.
   */
  readonly positions: Int32Array | null;

  constructor(id: number, pages: SavedPages, positions: Int32Array | null) {
    this.id = id;
    this.pages = pages;
    this.positions = positions;
  }
}

/**
 * Returns the number of native sequences with which a context is opened: one per slot, and one for exports. Saved
 * copies use higher ids. This is possible because llama.cpp accepts any id for a cell; only for reading a state must
 * the id be below this number.
 */
export function nativeSequences(maxSequences: number, maxSequenceIds: number): number {
  return Math.min(maxSequences + 1, maxSequenceIds);
}

export class UnifiedKv implements SlotKv {
  readonly layout: string;
  readonly #context: NativeContext;
  readonly #sequenceTokens: number;
  readonly #positions: SlotPositions | null;
  readonly #shape: StateShape;
  readonly #pages: PageTable;
  readonly #exportId: number;
  readonly #spareIds: number[] = [];

  constructor(context: NativeContext, { capacity, layout, bytesPerToken, positions, maxSequenceIds }: UnifiedOptions) {
    const { maxSequences, sequenceTokens, blockTokens, kvBlocks } = capacity;
    this.layout = layout;
    this.#context = context;
    this.#sequenceTokens = sequenceTokens;
    this.#positions = positions;
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
      if (start < this.#pages.length(slot)) this.#context.remove(slot, this.#end(slot, start));
      // If a row wants logits of several tokens, the tokens after the first of them may be drafts. Rejected drafts are
      // replaced later, so possible drafts do not count as settled (final).
      const settled = end - Math.max(at(batch.logitsCount, row) - 1, 0);
      assert.ok(this.#pages.write(slot, start, end, settled), `no room was reserved for ${end} tokens of slot ${slot}`);
    }
    // Clears the page table's requests to copy shared pages. Copies are not needed, because llama.cpp uses new cells
    // for the tokens that a slot writes.
    this.#pages.clearCopies();
  }

  commit(batch: Batch): void {
    this.#positions?.record(batch);
  }

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
    this.#context.share(from, to, this.#end(from, tokens));
    this.#positions?.set(to, this.#positions.copy(from, tokens));
  }

  save(slot: number, tokens?: number): SavedKv | null {
    const id = this.#spareIds.pop();
    if (id === undefined) return null;
    const pages = this.#pages.save(slot, tokens);
    this.#context.share(slot, id, this.#end(slot, pages.tokens));
    return new SavedSequence(id, pages, this.#positions?.copy(slot, pages.tokens) ?? null);
  }

  drop(saved: SavedKv): void {
    const { id, pages } = ownCopy(saved);
    this.#pages.drop(pages);
    this.#context.remove(id, -1);
    this.#spareIds.push(id);
  }

  restore(slot: number, saved: SavedKv, tokens: number): void {
    const { id, pages, positions } = ownCopy(saved);
    this.#pages.restore(slot, pages, tokens);
    if (positions) this.#positions?.set(slot, positions);
    this.#context.share(id, slot, this.#end(slot, tokens));
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
    return new SavedSequence(id, pages, this.#positions && positionsOf(bytes, tokens));
  }

  /** Returns the position after the first `tokens` tokens of a slot. */
  #end(slot: number, tokens: number): number {
    return this.#positions?.end(slot, tokens) ?? tokens;
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
