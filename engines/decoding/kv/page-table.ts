// Page table: which pages of a pool of KV memory hold which blocks of which slot, and which pages are shared with saved
// copies and other slots. Bookkeeping only: it touches no KV memory, but lists the pages to copy before the next write.
import assert from "node:assert/strict";

export interface PageShape {
  readonly slots: number;
  /** Most tokens of one sequence. */
  readonly sequenceTokens: number;
  readonly blockTokens: number;
  /** Each thread has its own pages; block b of every sequence is on thread b % threads. */
  readonly threads: number;
  /** Size of the pool, which slots and copies share. */
  readonly pagesPerThread: number;
}

/** Page `from` of a thread must be copied to page `to`. */
export interface PageCopy {
  readonly thread: number;
  readonly from: number;
  readonly to: number;
}

/** Pages that outlive their slot, until they are dropped. */
export class SavedPages {
  readonly tokens: number;
  /** Page of each block. */
  readonly pages: Int32Array;

  constructor(tokens: number, pages: Int32Array) {
    this.tokens = tokens;
    this.pages = pages;
  }
}

/**
 * Each slot and each copy counts one reference to each of its pages. Only the holder of the single reference writes a page,
 * so sharing and saving copy nothing: the first write behind the shared tokens does.
 */
export class PageTable {
  /** Copies to make before the next write, in this order: a later one may overwrite the source of an earlier one. */
  readonly copies: PageCopy[] = [];
  readonly #shape: PageShape;
  /** By slot: its pages by block, and their number, reserved ones included. */
  readonly #pages: Int32Array[];
  readonly #blocks: Int32Array;
  /** By slot: its tokens, and how many of the first ones no later row replaces (rejected drafts are replaced). */
  readonly #tokens: Int32Array;
  readonly #settled: Int32Array;
  /** By thread and page. */
  readonly #references: Int32Array;
  /** By thread: a stack of free pages, and its height. */
  readonly #free: Int32Array;
  readonly #freeCount: Int32Array;
  /** By thread: pages that the current call needs. */
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
    // The lowest pages are taken first, so that unneeded memory is never touched.
    for (let i = 0; i < this.#free.length; i++) this.#free[i] = pagesPerThread - 1 - (i % pagesPerThread);
    this.#freeCount = new Int32Array(threads).fill(pagesPerThread);
    this.#needed = new Int32Array(threads);
  }

  /** Blocks that any sequence can take: the free pages of the thread with the fewest, times the threads. */
  get freeBlocks(): number {
    let fewest = at(this.#freeCount, 0);
    for (let thread = 1; thread < this.#shape.threads; thread++) {
      fewest = Math.min(fewest, at(this.#freeCount, thread));
    }
    return fewest * this.#shape.threads;
  }

  /** Page of each block of the slot, numbered within its thread. A view, valid for blocks with tokens. */
  pages(slot: number): Int32Array {
    const pages = this.#pages[slot];
    assert.ok(pages, `no slot ${slot}`);
    return pages;
  }

  /** Tokens the slot holds. */
  length(slot: number): number {
    return at(this.#tokens, slot);
  }

  /**
   * Makes room for the first `tokens` tokens of the slot, so that a write() up to there that keeps the settled tokens
   * succeeds. False, and nothing changes, if there are too few pages.
   */
  reserve(slot: number, tokens: number): boolean {
    return this.#makeRoom(slot, at(this.#settled, slot), tokens);
  }

  /**
   * Prepares a write of tokens start..end of the slot; tokens it held from `start` on are dropped. The next write begins at
   * `settled` or later. False, and nothing changes, if pages were not reserved and there are too few.
   */
  write(slot: number, start: number, end: number, settled = end): boolean {
    const inRange = start >= 0 && start <= this.length(slot) && start <= end && settled <= end;
    assert.ok(inRange, `tokens ${start}..${end}, ${settled} settled, of a slot that holds ${this.length(slot)}`);
    if (!this.#makeRoom(slot, start, end)) return false;
    this.#tokens[slot] = end;
    this.#settled[slot] = settled;
    return true;
  }

  /** To be called when all `copies` have been made. */
  clearCopies(): void {
    this.copies.length = 0;
  }

  /** Gives back everything the slot has. */
  release(slot: number): void {
    const pages = this.pages(slot);
    for (let block = at(this.#blocks, slot) - 1; block >= 0; block--) this.#drop(block, at(pages, block));
    this.#blocks[slot] = 0;
    this.#tokens[slot] = 0;
    this.#settled[slot] = 0;
  }

  /** Lets slot `to` share the first `tokens` tokens of slot `from`, replacing its content. */
  copyPrefix(from: number, to: number, tokens: number): void {
    assert.ok(from !== to && tokens <= this.length(from), `${tokens} tokens of a slot that holds ${this.length(from)}`);
    this.#share(to, this.pages(from), tokens);
    this.#settled[from] = Math.max(at(this.#settled, from), tokens);
  }

  /** Refers to everything the slot holds. */
  save(slot: number, tokens = this.length(slot)): SavedPages {
    assert.ok(tokens <= this.length(slot), `${tokens} tokens of a slot with ${this.length(slot)}`);
    const saved = new SavedPages(tokens, this.pages(slot).slice(0, this.#blocksOf(tokens)));
    for (const [block, page] of saved.pages.entries()) add(this.#references, this.#index(block, page), 1);
    this.#saved.add(saved);
    return saved;
  }

  /** New pages for `tokens` tokens that are about to be written; null if there are too few. */
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

  /** Puts the first `tokens` tokens of a copy into a slot, replacing its content. */
  restore(slot: number, saved: SavedPages, tokens: number): void {
    const isKept = this.#saved.has(saved) && tokens <= saved.tokens;
    assert.ok(isKept, `${tokens} tokens of a copy that has ${saved.tokens} or was dropped`);
    this.#share(slot, saved.pages, tokens);
  }

  /** Throws unless every page is free or has one reference for each slot and copy that holds it. */
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

  /** Gives the slot an unshared page, with its content, for every block with one of the tokens from..to. */
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

  /** Whether there is a free page for each of the blocks first..end that is missing (from `have` on) or shared. */
  #fits(pages: Int32Array, first: number, have: number, end: number): boolean {
    this.#needed.fill(0);
    for (let block = first; block < end; block++) {
      if (block < have && !this.#isShared(block, at(pages, block))) continue;
      const thread = block % this.#shape.threads;
      if (add(this.#needed, thread, 1) > at(this.#freeCount, thread)) return false;
    }
    return true;
  }

  /** Replaces a shared page by an unshared one with the same content. */
  #own(pages: Int32Array, block: number): void {
    const from = at(pages, block);
    const to = this.#take(block);
    this.#drop(block, from);
    pages[block] = to;
    this.copies.push({ thread: block % this.#shape.threads, from, to });
  }

  /** Replaces the content of the slot by the first `tokens` tokens of `pages`. */
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

  /** A free page for a block, with one reference. */
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

/** Adds to an element and returns its new value. */
function add(array: Int32Array, index: number, amount: number): number {
  const value = at(array, index) + amount;
  array[index] = value;
  return value;
}
