// Owns which physical KV pages hold which blocks of which sequence, and which of them are shared: with copies of ended
// sequences, and through those with other running ones. Pure bookkeeping, used by the model on its own thread: it touches
// no KV memory, and tells which pages must be copied before the next write.
import assert from "node:assert/strict";

export interface PageShape {
  readonly slots: number;
  /** Most tokens of one sequence. */
  readonly sequenceTokens: number;
  readonly blockTokens: number;
  readonly threads: number;
  /** Pages, all threads together, that saved copies may hold; each thread gets an equal part of them, rounded up. */
  readonly savedPages: number;
}

/** Within one thread, the content of page `from` belongs into page `to` too. */
export interface PageCopy {
  readonly thread: number;
  readonly from: number;
  readonly to: number;
}

/** What a sequence held when it was saved. Only the table that made it reads it, until it is replaced. */
export class SavedPages {
  readonly tokens: number;
  readonly pages: Int32Array;

  constructor(tokens: number, pages: Int32Array) {
    this.tokens = tokens;
    this.pages = pages;
  }
}

/**
 * Pages are counted by reference: one for each slot and each saved copy that has it as a block. A page is written only by
 * a slot that holds its one reference, so saving and restoring copy nothing.
 */
export class PageTable {
  /**
   * Pages each thread must have room for: enough that grow() never fails. On one thread a slot refers to at most
   * blocksPerThread pages and all saved copies together to at most savedPerThread different ones; a page that is used has
   * a reference, so never more than slots * blocksPerThread + savedPerThread are used. When grow() takes a page for a
   * block, its slot refers to at most blocksPerThread - 1 others, and a shared page that is being replaced is counted
   * where it is shared: one page is free. Copies are bounded thread by thread, for block b always lies with thread
   * b % threads: a total could be used up by first blocks alone, which all lie with thread 0.
   */
  readonly pagesPerThread: number;
  /** Copies to make before the next write, in this order: what one reads, a later one may overwrite. */
  readonly copies: PageCopy[] = [];
  readonly #threads: number;
  readonly #blockTokens: number;
  readonly #sequenceTokens: number;
  readonly #savedPerThread: number;
  /** By slot: its pages by block, and how many blocks and tokens it holds. */
  readonly #pages: Int32Array[];
  readonly #blocks: Int32Array;
  readonly #tokens: Int32Array;
  /** By thread and page: references of slots and copies, and those of copies alone. */
  readonly #references: Int32Array;
  readonly #savedReferences: Int32Array;
  /** By thread: a stack of free pages and its height, and how many different pages copies refer to. */
  readonly #free: Int32Array;
  readonly #freeCount: Int32Array;
  readonly #savedCount: Int32Array;
  readonly #saved = new Set<SavedPages>();

  constructor({ slots, sequenceTokens, blockTokens, threads, savedPages }: PageShape) {
    const blocks = Math.ceil(sequenceTokens / blockTokens);
    const blocksPerThread = Math.ceil(blocks / threads);
    this.#savedPerThread = Math.ceil(savedPages / threads);
    this.pagesPerThread = slots * blocksPerThread + this.#savedPerThread;
    this.#threads = threads;
    this.#blockTokens = blockTokens;
    this.#sequenceTokens = sequenceTokens;
    this.#pages = Array.from({ length: slots }, () => new Int32Array(blocks));
    this.#blocks = new Int32Array(slots);
    this.#tokens = new Int32Array(slots);
    this.#references = new Int32Array(threads * this.pagesPerThread);
    this.#savedReferences = new Int32Array(threads * this.pagesPerThread);
    this.#free = new Int32Array(threads * this.pagesPerThread);
    // The lowest pages are taken first: memory that was never needed is never touched.
    for (let i = 0; i < this.#free.length; i++) {
      this.#free[i] = this.pagesPerThread - 1 - (i % this.pagesPerThread);
    }
    this.#freeCount = new Int32Array(threads).fill(this.pagesPerThread);
    this.#savedCount = new Int32Array(threads);
  }

  /**
   * Page of each block of the slot; block b lies with thread b % threads, and numbers count that thread's pages. A view:
   * entries from blockCount(slot) on mean nothing.
   */
  pages(slot: number): Int32Array {
    const pages = this.#pages[slot];
    assert.ok(pages, `no slot ${slot}`);
    return pages;
  }

  blockCount(slot: number): number {
    return at(this.#blocks, slot);
  }

  /** Tokens the slot holds. */
  length(slot: number): number {
    return at(this.#tokens, slot);
  }

  /**
   * Makes room for tokens start..end; what the slot held from `start` on is dropped. A page that others share and that
   * keeps tokens of the slot is replaced: the copy to make before writing is appended to `copies`.
   */
  grow(slot: number, start: number, end: number): void {
    const inRange = start >= 0 && start <= this.length(slot) && end >= start && end <= this.#sequenceTokens;
    assert.ok(inRange, `tokens ${start}..${end} of a slot with ${this.length(slot)} of ${this.#sequenceTokens}`);
    this.#keep(slot, Math.ceil(start / this.#blockTokens));
    if (start % this.#blockTokens > 0 && end > start) this.#ownLastPage(slot);
    const pages = this.pages(slot);
    const blocks = Math.ceil(end / this.#blockTokens);
    for (let block = this.blockCount(slot); block < blocks; block++) pages[block] = this.#take(block);
    this.#blocks[slot] = blocks;
    this.#tokens[slot] = end;
  }

  /** To be called when all `copies` have been made. */
  clearCopies(): void {
    this.copies.length = 0;
  }

  /** Drops everything the slot holds. */
  release(slot: number): void {
    this.#keep(slot, 0);
    this.#tokens[slot] = 0;
  }

  /**
   * Refers to everything the slot holds, in place of what the copies in `old` refer to, none of which must be used again;
   * null, and they stay as they are, where copies would hold more pages than they may.
   */
  save(slot: number, old: readonly SavedPages[]): SavedPages | null {
    for (const one of old) assert.ok(this.#saved.has(one), "a copy that was replaced");
    const saved = new SavedPages(this.length(slot), this.pages(slot).slice(0, this.blockCount(slot)));
    this.#countSaved(saved, 1);
    for (const one of old) this.#countSaved(one, -1);
    if (this.#savedCount.some((count) => count > this.#savedPerThread)) {
      for (const one of old) this.#countSaved(one, 1);
      this.#countSaved(saved, -1);
      return null;
    }
    this.#saved.add(saved);
    for (const [block, page] of saved.pages.entries()) add(this.#references, this.#index(block, page), 1);
    for (const one of old) {
      this.#saved.delete(one);
      for (const [block, page] of one.pages.entries()) this.#drop(block, page);
    }
    return saved;
  }

  /** Puts the first `tokens` tokens of a copy into a slot, in place of what that held. */
  restore(slot: number, saved: SavedPages, tokens: number): void {
    assert.ok(
      this.#saved.has(saved) && tokens <= saved.tokens,
      `${tokens} tokens of a copy that has ${saved.tokens} or was replaced`,
    );
    this.#keep(slot, 0);
    const blocks = Math.ceil(tokens / this.#blockTokens);
    const pages = this.pages(slot);
    for (let block = 0; block < blocks; block++) {
      const page = at(saved.pages, block);
      pages[block] = page;
      add(this.#references, this.#index(block, page), 1);
    }
    this.#blocks[slot] = blocks;
    this.#tokens[slot] = tokens;
  }

  /** Throws unless every page is either free or has as many references as slots and copies make. */
  checkIntegrity(): void {
    const references = new Int32Array(this.#references.length);
    const savedReferences = new Int32Array(this.#references.length);
    for (const [slot, pages] of this.#pages.entries()) {
      const blocks = this.blockCount(slot);
      assert.equal(blocks, Math.ceil(this.length(slot) / this.#blockTokens), `blocks of slot ${slot}`);
      for (let block = 0; block < blocks; block++) add(references, this.#index(block, at(pages, block)), 1);
    }
    for (const { pages } of this.#saved) {
      for (const [block, page] of pages.entries()) {
        add(references, this.#index(block, page), 1);
        add(savedReferences, this.#index(block, page), 1);
      }
    }
    assert.deepEqual(this.#references, references, "references");
    assert.deepEqual(this.#savedReferences, savedReferences, "references of copies");
    for (let thread = 0; thread < this.#threads; thread++) this.#checkThread(thread);
  }

  #checkThread(thread: number): void {
    const first = thread * this.pagesPerThread;
    const free = new Set(this.#free.subarray(first, first + at(this.#freeCount, thread)));
    assert.equal(free.size, at(this.#freeCount, thread), `a page of thread ${thread} is free twice`);
    let saved = 0;
    for (let page = 0; page < this.pagesPerThread; page++) {
      assert.equal(free.has(page), at(this.#references, first + page) === 0, `page ${page} of thread ${thread}`);
      if (at(this.#savedReferences, first + page) > 0) saved++;
    }
    assert.equal(at(this.#savedCount, thread), saved, `saved pages of thread ${thread}`);
    assert.ok(saved <= this.#savedPerThread, `${saved} saved pages of thread ${thread}`);
  }

  /** Drops the slot's blocks from `blocks` on. */
  #keep(slot: number, blocks: number): void {
    const pages = this.pages(slot);
    for (let block = this.blockCount(slot) - 1; block >= blocks; block--) this.#drop(block, at(pages, block));
    this.#blocks[slot] = Math.min(blocks, this.blockCount(slot));
  }

  /** Gives the slot a last page that nobody else refers to, with the same content. */
  #ownLastPage(slot: number): void {
    const pages = this.pages(slot);
    const block = this.blockCount(slot) - 1;
    const from = at(pages, block);
    if (at(this.#references, this.#index(block, from)) === 1) return;
    const to = this.#take(block);
    this.#drop(block, from);
    pages[block] = to;
    this.copies.push({ thread: block % this.#threads, from, to });
  }

  /** Counts the references of a copy, or no longer. */
  #countSaved(saved: SavedPages, amount: 1 | -1): void {
    const edge = amount === 1 ? 1 : 0;
    for (const [block, page] of saved.pages.entries()) {
      const references = add(this.#savedReferences, this.#index(block, page), amount);
      if (references === edge) add(this.#savedCount, block % this.#threads, amount);
    }
  }

  /** A free page for a block, with one reference. */
  #take(block: number): number {
    const thread = block % this.#threads;
    assert.ok(at(this.#freeCount, thread) > 0, `all ${this.pagesPerThread} pages of thread ${thread} are used`);
    const top = add(this.#freeCount, thread, -1);
    const page = at(this.#free, thread * this.pagesPerThread + top);
    this.#references[this.#index(block, page)] = 1;
    return page;
  }

  #drop(block: number, page: number): void {
    if (add(this.#references, this.#index(block, page), -1) > 0) return;
    const thread = block % this.#threads;
    const top = add(this.#freeCount, thread, 1) - 1;
    this.#free[thread * this.pagesPerThread + top] = page;
  }

  #index(block: number, page: number): number {
    return (block % this.#threads) * this.pagesPerThread + page;
  }
}

function at(array: Int32Array, index: number): number {
  return array[index] as number;
}

/** Adds to an element and returns what it is then. */
function add(array: Int32Array, index: number, amount: number): number {
  const value = at(array, index) + amount;
  array[index] = value;
  return value;
}
