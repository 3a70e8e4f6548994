// Page table: maps the blocks of each slot to pages of a pool of KV memory. Pages may be shared with saved copies and
// other slots. The table does not access KV memory: it only lists the pages to copy before the next write.
import assert from "node:assert/strict";

export interface PageShape {
  readonly slots: number;
  /** Maximum number of tokens of one sequence. */
  readonly sequenceTokens: number;
  readonly blockTokens: number;
  /** Number of compute threads. Each thread has its own pages; block b of every sequence is on thread b % threads. */
  readonly threads: number;
  /** Number of pages of each thread, shared by slots and saved copies. */
  readonly pagesPerThread: number;
}

/** Instruction to copy page `from` of a thread to page `to`. */
export interface PageCopy {
  readonly thread: number;
  readonly from: number;
  readonly to: number;
}

/**
 * A saved copy of the first tokens of a sequence. Its pages are kept until drop(), even if no slot uses them any more.
 */
export class SavedPages {
  readonly tokens: number;
  /** Page number of each block. Each thread numbers its own pages. */
  readonly pages: Int32Array;

  constructor(tokens: number, pages: Int32Array) {
    this.tokens = tokens;
    this.pages = pages;
  }
}

/**
 * Reference-counted pages with copy on write. Each slot and each saved copy has one reference to each of its pages. A
 * page may be written only if it has one reference. Sharing and saving copy no pages. The first write to a shared page
 * copies it.
 */
export class PageTable {
  /**
   * Pages to copy before the next write. Copy them in the order of the list, because a later copy
   * may overwrite the source of an earlier copy.
   */
  readonly copies: PageCopy[] = [];
  readonly #shape: PageShape;
  /** By slot: the page of each block, and the number of blocks, including reserved ones. */
  readonly #pages: Int32Array[];
  readonly #blocks: Int32Array;
  /**
   * By slot: the number of tokens, and the number of settled tokens. Tokens after the settled tokens may be
   * replaced, because they are drafts.
   */
  readonly #tokens: Int32Array;
  readonly #settled: Int32Array;
  /** Number of references, by thread and page. */
  readonly #references: Int32Array;
  /** By thread: a stack of free pages, and its height. */
  readonly #free: Int32Array;
  readonly #freeCount: Int32Array;
  /** By thread: number of pages that the current call needs. */
  readonly #needed: Int32Array;
  readonly #saved = new Set<SavedPages>();

  constructor(shape: PageShape) {
    const { slots, sequenceTokens, blockTokens, threads, pagesPerThread } = shape;
    this.#shape = shape;
    this.#pages = Array.from({ length: slots }, () => new Int32Array(Math.ceil(sequenceTokens / blockTokens)));
    this.#blocks = new Int32Array(slots);
    this.#tokens = new Int32Array(slots);
    this.#settled = new Int32Array(slots);
    this.#references = new Int32Array(threads * pagesPerThread);
    this.#free = new Int32Array(threads * pagesPerThread);
    // Pages with the lowest numbers are used first, so that the memory of the other pages stays untouched as long as
    // possible.
    for (let i = 0; i < this.#free.length; i++) this.#free[i] = pagesPerThread - 1 - (i % pagesPerThread);
    this.#freeCount = new Int32Array(threads).fill(pagesPerThread);
    this.#needed = new Int32Array(threads);
  }

  /**
   * Number of free blocks that any sequence can use: the number of threads times the smallest number of free pages of a
   * thread.
   */
  get freeBlocks(): number {
    let fewest = at(this.#freeCount, 0);
    for (let thread = 1; thread < this.#shape.threads; thread++) {
      fewest = Math.min(fewest, at(this.#freeCount, thread));
    }
    return fewest * this.#shape.threads;
  }

  /**
   * Returns the page of each block of the slot, numbered within the block's thread. The result is a view; only the
   * entries of blocks with tokens are valid.
   */
  pages(slot: number): Int32Array {
    const pages = this.#pages[slot];
    assert.ok(pages, `no slot ${slot}`);
    return pages;
  }

  /** Number of tokens that the slot holds. */
  length(slot: number): number {
    return at(this.#tokens, slot);
  }

  /**
   * Reserves pages for the first `tokens` tokens of the slot. A later write() up to `tokens` succeeds if it keeps the
   * settled tokens. Returns false and changes nothing if there are too few pages.
   */
  reserve(slot: number, tokens: number): boolean {
    return this.#makeRoom(slot, at(this.#settled, slot), tokens);
  }

  /**
   * Prepares a write of tokens `start` to `end` (exclusive) of the slot. Drops the slot's tokens from position `start`
   * on. The next write must begin at `settled` or later. Returns false and changes nothing if the write needs more
   * pages than are free.
   */
  write(slot: number, start: number, end: number, settled = end): boolean {
    const inRange = start >= 0 && start <= this.length(slot) && start <= end && settled <= end;
    assert.ok(inRange, `tokens ${start}..${end}, ${settled} settled, of a slot that holds ${this.length(slot)}`);
    if (!this.#makeRoom(slot, start, end)) return false;
    this.#tokens[slot] = end;
    this.#settled[slot] = settled;
    return true;
  }

  /** Clears the list of copies. Call it after all copies have been made. */
  clearCopies(): void {
    this.copies.length = 0;
  }

  release(slot: number): void {
    const pages = this.pages(slot);
    for (let block = at(this.#blocks, slot) - 1; block >= 0; block--) this.#drop(block, at(pages, block));
    this.#blocks[slot] = 0;
    this.#tokens[slot] = 0;
    this.#settled[slot] = 0;
  }

  /** Replaces the content of slot `to` by the first `tokens` tokens of slot `from`, and shares their pages. */
  copyPrefix(from: number, to: number, tokens: number): void {
    assert.ok(from !== to && tokens <= this.length(from), `${tokens} tokens of a slot that holds ${this.length(from)}`);
    this.#share(to, this.pages(from), tokens);
    this.#settled[from] = Math.max(at(this.#settled, from), tokens);
  }

  /** Saves the first `tokens` tokens of a slot (default: all) by sharing their pages. */
  save(slot: number, tokens = this.length(slot)): SavedPages {
    assert.ok(tokens <= this.length(slot), `${tokens} tokens of a slot with ${this.length(slot)}`);
    const saved = new SavedPages(tokens, this.pages(slot).slice(0, this.#blocksOf(tokens)));
    for (const [block, page] of saved.pages.entries()) add(this.#references, this.#index(block, page), 1);
    this.#saved.add(saved);
    return saved;
  }

  /** Takes new pages for `tokens` tokens that are about to be written; null if there are too few. */
  take(tokens: number): SavedPages | null {
    const pages = new Int32Array(this.#blocksOf(tokens));
    if (!this.#fits(pages, 0, 0, pages.length)) return null;
    for (let block = 0; block < pages.length; block++) pages[block] = this.#take(block);
    const saved = new SavedPages(tokens, pages);
    this.#saved.add(saved);
    return saved;
  }

  drop(saved: SavedPages): void {
    assert.ok(this.#saved.delete(saved), "a copy that was dropped");
    for (const [block, page] of saved.pages.entries()) this.#drop(block, page);
  }

  /** Replaces the content of a slot by the first `tokens` tokens of a saved copy. */
  restore(slot: number, saved: SavedPages, tokens: number): void {
    const isKept = this.#saved.has(saved) && tokens <= saved.tokens;
    assert.ok(isKept, `${tokens} tokens of a copy that has ${saved.tokens} or was dropped`);
    this.#share(slot, saved.pages, tokens);
  }

  /**
   * Checks that every page is free, or has exactly one reference for each slot and saved copy that holds it. Throws if
   * not.
   */
  checkIntegrity(): void {
    const references = new Int32Array(this.#references.length);
    for (const [slot, pages] of this.#pages.entries()) {
      const blocks = at(this.#blocks, slot);
      assert.ok(blocks >= this.#blocksOf(this.length(slot)), `${blocks} blocks of slot ${slot}`);
      assert.ok(at(this.#settled, slot) <= this.length(slot), `settled tokens of slot ${slot}`);
      for (let block = 0; block < blocks; block++) add(references, this.#index(block, at(pages, block)), 1);
    }
    for (const { pages } of this.#saved) {
      for (const [block, page] of pages.entries()) add(references, this.#index(block, page), 1);
    }
    assert.deepEqual(this.#references, references, "references");
    for (let thread = 0; thread < this.#shape.threads; thread++) this.#checkThread(thread);
  }

  #checkThread(thread: number): void {
    const { pagesPerThread } = this.#shape;
    const first = thread * pagesPerThread;
    const free = new Set(this.#free.subarray(first, first + at(this.#freeCount, thread)));
    assert.equal(free.size, at(this.#freeCount, thread), `a page of thread ${thread} is free twice`);
    for (let page = 0; page < pagesPerThread; page++) {
      assert.equal(free.has(page), at(this.#references, first + page) === 0, `page ${page} of thread ${thread}`);
    }
  }

  /**
   * Prepares the blocks of tokens `from` to `to` (exclusive) for writing: gives a new page to each block without a
   * page, and replaces each shared page by a copy. Returns false and changes nothing if there are too few pages.
   */
  #makeRoom(slot: number, from: number, to: number): boolean {
    if (from >= to) return true;
    const pages = this.pages(slot);
    const have = at(this.#blocks, slot);
    const end = this.#blocksOf(to);
    assert.ok(end <= pages.length, `${to} tokens of a slot that may hold ${this.#shape.sequenceTokens}`);
    const first = Math.floor(from / this.#shape.blockTokens);
    if (!this.#fits(pages, first, have, end)) return false;
    for (let block = first; block < end; block++) {
      if (block >= have) pages[block] = this.#take(block);
      else if (this.#isShared(block, at(pages, block))) this.#own(pages, block);
    }
    this.#blocks[slot] = Math.max(have, end);
    return true;
  }

  /**
   * Whether there are enough free pages for blocks `first` to `end` (exclusive). A block needs a free page if it has no
   * page (block number `have` or higher) or if its page is shared.
   */
  #fits(pages: Int32Array, first: number, have: number, end: number): boolean {
    this.#needed.fill(0);
    for (let block = first; block < end; block++) {
      if (block < have && !this.#isShared(block, at(pages, block))) continue;
      const thread = block % this.#shape.threads;
      if (add(this.#needed, thread, 1) > at(this.#freeCount, thread)) return false;
    }
    return true;
  }

  /** Replaces a shared page by an unshared page with the same content. */
  #own(pages: Int32Array, block: number): void {
    const from = at(pages, block);
    const to = this.#take(block);
    this.#drop(block, from);
    pages[block] = to;
    this.copies.push({ thread: block % this.#shape.threads, from, to });
  }

  /** Replaces the content of the slot by the first `tokens` tokens of `pages`. The slot then shares these pages. */
  #share(slot: number, pages: Int32Array, tokens: number): void {
    this.release(slot);
    const blocks = this.#blocksOf(tokens);
    const own = this.pages(slot);
    for (let block = 0; block < blocks; block++) {
      const page = at(pages, block);
      own[block] = page;
      add(this.#references, this.#index(block, page), 1);
    }
    this.#blocks[slot] = blocks;
    this.#tokens[slot] = tokens;
    this.#settled[slot] = tokens;
  }

  /** Takes a free page for a block and sets the number of its references to 1. */
  #take(block: number): number {
    const thread = block % this.#shape.threads;
    const top = add(this.#freeCount, thread, -1);
    assert.ok(top >= 0, `all pages of thread ${thread} are used`);
    const page = at(this.#free, thread * this.#shape.pagesPerThread + top);
    this.#references[this.#index(block, page)] = 1;
    return page;
  }

  #drop(block: number, page: number): void {
    if (add(this.#references, this.#index(block, page), -1) > 0) return;
    const thread = block % this.#shape.threads;
    const top = add(this.#freeCount, thread, 1) - 1;
    this.#free[thread * this.#shape.pagesPerThread + top] = page;
  }

  #isShared(block: number, page: number): boolean {
    return at(this.#references, this.#index(block, page)) > 1;
  }

  #blocksOf(tokens: number): number {
    return Math.ceil(tokens / this.#shape.blockTokens);
  }

  #index(block: number, page: number): number {
    return (block % this.#shape.threads) * this.#shape.pagesPerThread + page;
  }
}

function at(array: Int32Array, index: number): number {
  return array[index] as number;
}

/** Adds `amount` to an element and returns the new value. */
function add(array: Int32Array, index: number, amount: number): number {
  const value = at(array, index) + amount;
  array[index] = value;
  return value;
}
