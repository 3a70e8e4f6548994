// Owns which pages of a pool of KV memory hold which blocks of which sequence, and which of them are shared: with saved
// copies, and with other running sequences. Pure bookkeeping, used by a model on its own thread: it touches no KV memory,
// and tells which pages must be copied before the next write.
import assert from "node:assert/strict";

export interface PageShape {
  readonly slots: number;
  /** Most tokens of one sequence. */
  readonly sequenceTokens: number;
  readonly blockTokens: number;
  /** Threads with pages of their own: block b of every sequence lies with thread b % threads. */
  readonly threads: number;
  /** The pool: slots and copies together hold no more. */
  readonly pagesPerThread: number;
}

/** Within one thread, the content of page `from` belongs into page `to` too. */
export interface PageCopy {
  readonly thread: number;
  readonly from: number;
  readonly to: number;
}

/** Pages that outlive their slot. Only the table that made it reads it, until it is dropped. */
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
 * Pages are counted by reference: one for each slot and each copy that has it as a block. A page is written only by a slot
 * that holds its one reference, so sharing and saving copy nothing: the first write behind what is shared does.
 */
export class PageTable {
  /** Copies to make before anything else is written, in this order: what one reads, a later one may overwrite. */
  readonly copies: PageCopy[] = [];
  readonly #shape: PageShape;
  /** By slot: its pages by block, and how many it has, room for tokens to come included. */
  readonly #pages: Int32Array[];
  readonly #blocks: Int32Array;
  /** By slot: tokens it holds; and how many of those, from the first, no later row replaces: drafts may be rejected. */
  readonly #tokens: Int32Array;
  readonly #settled: Int32Array;
  /** By thread and page. */
  readonly #references: Int32Array;
  /** By thread: a stack of free pages, and its height. */
  readonly #free: Int32Array;
  readonly #freeCount: Int32Array;
  /** By thread: pages that the call under way needs. */
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
    // The lowest pages are taken first: memory that was never needed is never touched.
    for (let i = 0; i < this.#free.length; i++) this.#free[i] = pagesPerThread - 1 - (i % pagesPerThread);
    this.#freeCount = new Int32Array(threads).fill(pagesPerThread);
    this.#needed = new Int32Array(threads);
  }

  /** Blocks that can be taken, wherever a sequence begins to take them: counted on the thread that has the fewest. */
  get freeBlocks(): number {
    let fewest = at(this.#freeCount, 0);
    for (let thread = 1; thread < this.#shape.threads; thread++) {
      fewest = Math.min(fewest, at(this.#freeCount, thread));
    }
    return fewest * this.#shape.threads;
  }

  /** Page of each block of the slot, numbered thread by thread. A view: only blocks with tokens in them mean anything. */
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
   * Makes room for the first `tokens` tokens of the slot, so that a write() up to there which leaves alone what is settled
   * finds it. False, and nothing changes, where pages are wanting.
   */
  reserve(slot: number, tokens: number): boolean {
    return this.#makeRoom(slot, at(this.#settled, slot), tokens);
  }

  /**
   * Tokens start..end of the slot are about to be written; what it held from `start` on is dropped. The next write begins
   * at `settled` or later. False, and nothing changes, where pages are wanting that were not reserved.
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

  /** Lets slot `to` share the first `tokens` tokens of slot `from`, in place of what it held. */
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

  /** Pages of their own for so many tokens that are about to be written; null where there are too few. */
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

  /** Puts the first `tokens` tokens of a copy into a slot, in place of what that held. */
  restore(slot: number, saved: SavedPages, tokens: number): void {
    const isKept = this.#saved.has(saved) && tokens <= saved.tokens;
    assert.ok(isKept, `${tokens} tokens of a copy that has ${saved.tokens} or was dropped`);
    this.#share(slot, saved.pages, tokens);
  }

  /** Throws unless every page is either free or has as many references as slots and copies make. */
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

  /** Gives the slot a page of its own, with what it held, for every block that has one of the tokens from..to. */
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

  /** Whether there is a free page for each of the blocks first..end that are not there (from `have` on) or are shared. */
  #fits(pages: Int32Array, first: number, have: number, end: number): boolean {
    this.#needed.fill(0);
    for (let block = first; block < end; block++) {
      if (block < have && !this.#isShared(block, at(pages, block))) continue;
      const thread = block % this.#shape.threads;
      if (add(this.#needed, thread, 1) > at(this.#freeCount, thread)) return false;
    }
    return true;
  }

  /** Replaces a shared page by one with the same content that nobody else refers to. */
  #own(pages: Int32Array, block: number): void {
    const from = at(pages, block);
    const to = this.#take(block);
    this.#drop(block, from);
    pages[block] = to;
    this.copies.push({ thread: block % this.#shape.threads, from, to });
  }

  /** Makes the first `tokens` tokens that `pages` hold all that the slot has. */
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

/** Adds to an element and returns what it is then. */
function add(array: Int32Array, index: number, amount: number): number {
  const value = at(array, index) + amount;
  array[index] = value;
  return value;
}
