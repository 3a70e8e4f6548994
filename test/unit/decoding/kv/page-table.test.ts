import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type PageShape, PageTable, type SavedPages } from "../../../../engines/decoding/kv/page-table.ts";

interface Holder {
  tokens: number[];
  /** Number of tokens at the start of the slot that no later row replaces. */
  settled: number;
}

/** Page table with simulated pages. Also records which tokens each slot and copy must see. */
class Rig {
  readonly table: PageTable;
  readonly shape: PageShape;
  readonly slots: Holder[];
  readonly copies: { saved: SavedPages; tokens: number[] }[] = [];
  readonly #memory: number[][][];
  #nextToken = 1;

  constructor(shape: PageShape) {
    this.shape = shape;
    this.table = new PageTable(shape);
    const pages = { length: shape.pagesPerThread };
    this.#memory = Array.from({ length: shape.threads }, () => Array.from(pages, () => []));
    this.slots = Array.from({ length: shape.slots }, () => ({ tokens: [], settled: 0 }));
  }

  get totalBlocks(): number {
    return this.shape.pagesPerThread * this.shape.threads;
  }

  /** Number of pages ever written, on all threads. */
  get touchedPages(): number {
    return this.#memory.flat().filter((page) => page.length > 0).length;
  }

  reserve(slot: number, tokens: number): boolean {
    const { blockTokens } = this.shape;
    const free = this.table.freeBlocks;
    const most = Math.ceil(tokens / blockTokens) - Math.floor(this.slots[slot]!.settled / blockTokens);
    const isReserved = this.table.reserve(slot, tokens);
    if (!isReserved) {
      assert.ok(most > free, `${most} of ${free} free blocks refused`);
      assert.deepEqual([this.table.freeBlocks, this.table.copies.length], [free, 0], "nothing changes");
    }
    this.#makeCopies();
    return isReserved;
  }

  /** Writes the new tokens start..end. The last `drafts` of them are drafts, which a later write may replace. */
  write(slot: number, start: number, end: number, drafts = 0): boolean {
    if (!this.table.write(slot, start, end, end - drafts)) return false;
    this.#makeCopies();
    const { tokens } = this.slots[slot]!;
    tokens.length = start;
    for (let at = start; at < end; at++) {
      tokens.push(this.#nextToken);
      this.#page(this.table.pages(slot), at)[at % this.shape.blockTokens] = this.#nextToken++;
    }
    this.slots[slot]!.settled = end - drafts;
    return true;
  }

  release(slot: number): void {
    this.table.release(slot);
    this.slots[slot] = { tokens: [], settled: 0 };
  }

  copyPrefix(from: number, to: number, tokens: number): void {
    this.table.copyPrefix(from, to, tokens);
    const source = this.slots[from]!;
    source.settled = Math.max(source.settled, tokens);
    this.slots[to] = { tokens: source.tokens.slice(0, tokens), settled: tokens };
  }

  save(slot: number): void {
    this.copies.push({ saved: this.table.save(slot), tokens: [...this.slots[slot]!.tokens] });
  }

  drop(copy: number): void {
    const [dropped] = this.copies.splice(copy, 1);
    this.table.drop(dropped!.saved);
  }

  restore(slot: number, copy: number, tokens: number): void {
    const { saved, tokens: known } = this.copies[copy]!;
    this.table.restore(slot, saved, tokens);
    this.slots[slot] = { tokens: known.slice(0, tokens), settled: tokens };
  }

  /** Simulates the export of a saved copy of KV and its import as a new copy. */
  import(copy: number): void {
    const { tokens } = this.copies[copy]!;
    const blocks = Math.ceil(tokens.length / this.shape.blockTokens);
    const free = this.table.freeBlocks;
    const saved = this.table.take(tokens.length);
    if (saved === null) assert.ok(blocks > free, `${blocks} of ${free} free blocks refused`);
    else {
      for (const [at, token] of tokens.entries()) this.#page(saved.pages, at)[at % this.shape.blockTokens] = token;
      this.copies.push({ saved, tokens: [...tokens] });
    }
  }

  check(): void {
    this.table.checkIntegrity();
    for (const [slot, { tokens }] of this.slots.entries()) {
      assert.equal(this.table.length(slot), tokens.length);
      this.#checkTokens(this.table.pages(slot), tokens, `slot ${slot}`);
    }
    for (const [at, { saved, tokens }] of this.copies.entries()) this.#checkTokens(saved.pages, tokens, `copy ${at}`);
  }

  #makeCopies(): void {
    for (const { thread, from, to } of this.table.copies) {
      const pages = this.#memory[thread]!;
      pages[to] = [...pages[from]!];
    }
    this.table.clearCopies();
  }

  #checkTokens(pages: Int32Array, tokens: readonly number[], holder: string): void {
    const seen = tokens.map((_, at) => this.#page(pages, at)[at % this.shape.blockTokens]);
    assert.deepEqual(seen, [...tokens], holder);
  }

  #page(pages: Int32Array, token: number): number[] {
    const block = Math.floor(token / this.shape.blockTokens);
    return this.#memory[block % this.shape.threads]![pages[block]!]!;
  }
}

/** Random number of an operation, given as a fraction of the range that is possible when the operation runs. */
const fraction = fc.integer({ min: 0, max: 1000 }).map((thousandths) => thousandths / 1000);
/** Random pool sizes, from one long sequence to more than all slots can use. */
const shapes = fc
  .record({
    slots: fc.integer({ min: 1, max: 5 }),
    sequenceTokens: fc.integer({ min: 1, max: 60 }),
    blockTokens: fc.constantFrom(1, 4, 8),
    threads: fc.integer({ min: 1, max: 3 }),
    room: fraction,
  })
  .map(({ room, ...shape }): PageShape => {
    const blocks = Math.ceil(shape.sequenceTokens / shape.blockTokens);
    return { ...shape, pagesPerThread: Math.ceil((blocks * (1 + room * shape.slots)) / shape.threads) };
  });
/** Maximum number of tokens in a row, small enough that sequences live for several steps. */
const longestRow = 9;
const kinds = ["step", "step", "step", "reserve", "release", "share", "save", "drop", "restore", "import"] as const;
const operation = fc.record({ kind: fc.constantFrom(...kinds), a: fraction, b: fraction, c: fraction });
/** `size` is set, because by default the generator makes only about ten operations. */
const operations = fc.array(operation, { maxLength: 80, size: "max" });

/** Returns the index from 0 to count - 1 at this fraction of the range. */
function pick(share: number, count: number): number {
  return Math.min(Math.floor(share * count), count - 1);
}

/** Writes a row for every slot, as a scheduler's step does. Releases slots for which there are too few free pages. */
function step(rig: Rig, a: number, b: number, c: number): void {
  const { slots, sequenceTokens } = rig.shape;
  const rows: { slot: number; start: number; end: number; drafts: number }[] = [];
  for (let slot = 0; slot < slots; slot++) {
    const { settled, tokens } = rig.slots[slot]!;
    const start = settled + Math.floor(a * (tokens.length - settled));
    const end = Math.min(start + Math.ceil(((b * (slot + 1)) % 1) * longestRow), sequenceTokens);
    const next = slot + 1;
    // A sequence joins during the step: it shares its neighbour's tokens before the neighbour reserves pages.
    if (next < slots && rig.slots[next]!.tokens.length === 0) rig.copyPrefix(slot, next, settled);
    if (!rig.reserve(slot, end)) rig.release(slot);
    else if (end > start) rows.push({ slot, start, end, drafts: Math.floor(c * (end - start - 1)) });
  }
  for (const { slot, start, end, drafts } of rows) assert.ok(rig.write(slot, start, end, drafts), "it was reserved");
}

function run(rig: Rig, { kind, a, b, c }: { kind: (typeof kinds)[number]; a: number; b: number; c: number }): void {
  const slot = pick(a, rig.shape.slots);
  const other = (slot + 1) % rig.shape.slots;
  if (kind === "step") step(rig, a, b, c);
  else if (kind === "reserve") rig.reserve(slot, Math.floor(b * rig.shape.sequenceTokens));
  else if (kind === "release") rig.release(slot);
  else if (kind === "save") rig.save(slot);
  else if (kind === "share" && other !== slot) {
    rig.release(other);
    const { settled, tokens } = rig.slots[slot]!;
    rig.copyPrefix(slot, other, settled + Math.floor(b * (tokens.length - settled)));
  } else if (rig.copies.length > 0) {
    const copy = pick(b, rig.copies.length);
    if (kind === "drop") rig.drop(copy);
    else if (kind === "import") rig.import(copy);
    else if (kind === "restore") rig.restore(slot, copy, Math.floor(c * rig.copies[copy]!.tokens.length));
  }
}

describe("the page table", () => {
  it("shows every slot and every copy its own tokens and loses no page, under random operations", () => {
    fc.assert(
      fc.property(shapes, operations, (shape, list) => {
        const rig = new Rig(shape);
        for (const operation of list) {
          run(rig, operation);
          rig.check();
        }
        for (let slot = 0; slot < shape.slots; slot++) rig.release(slot);
        while (rig.copies.length > 0) rig.drop(0);
        rig.check();
        assert.equal(rig.table.freeBlocks, rig.totalBlocks);
      }),
      { numRuns: 300 },
    );
  });

  it("gives one sequence the whole pool, and then nothing to others", () => {
    const rig = new Rig({ slots: 2, sequenceTokens: 64, blockTokens: 8, threads: 2, pagesPerThread: 4 });
    assert.ok(rig.reserve(0, 64));
    assert.ok(rig.write(0, 0, 64));
    assert.equal(rig.table.freeBlocks, 0);
    assert.equal(rig.reserve(1, 1), false);
    rig.save(0);
    rig.release(0);
    assert.equal(rig.reserve(1, 1), false, "a copy takes its room from the same pool");
    rig.drop(0);
    assert.ok(rig.reserve(1, 1));
    rig.check();
  });

  it("promises no more than the thread with the fewest free pages can give", () => {
    const rig = new Rig({ slots: 3, sequenceTokens: 64, blockTokens: 8, threads: 2, pagesPerThread: 4 });
    // One block for each slot, both on thread 0.
    for (const slot of [0, 1]) assert.ok(rig.reserve(slot, 8));
    assert.equal(rig.table.freeBlocks, 4);
    assert.equal(rig.reserve(2, 5 * 8), false);
    assert.ok(rig.reserve(2, 4 * 8));
    rig.check();
  });

  it("copies nothing on save, restore and copyPrefix, and later only the shared last page that is written", () => {
    const shape = { slots: 3, sequenceTokens: 64, blockTokens: 8, threads: 2, pagesPerThread: 16 };
    const rig = new Rig(shape);
    rig.write(0, 0, 20);
    rig.save(0);
    rig.restore(1, 0, 20);
    rig.copyPrefix(0, 2, 16);
    assert.deepEqual([...rig.table.pages(1).subarray(0, 3)], [...rig.table.pages(0).subarray(0, 3)]);
    for (const [slot, end, due] of [
      [2, 17, 0],
      [0, 21, 1],
      [1, 30, 1],
    ] as const) {
      const free = rig.table.freeBlocks;
      assert.ok(rig.table.reserve(slot, end));
      const { copies } = rig.table;
      assert.deepEqual(
        copies.map(({ thread }) => thread),
        Array.from({ length: due }, () => 0),
      );
      assert.ok(rig.table.freeBlocks <= free);
      assert.ok(rig.write(slot, rig.table.length(slot), end));
      rig.check();
    }
    const free = rig.table.freeBlocks;
    assert.ok(rig.reserve(0, 22));
    assert.equal(rig.table.freeBlocks, free, "what is one's own is not copied again");
  });

  it("lets a row replace drafts without changing slots that share the tokens before them", () => {
    const rig = new Rig({ slots: 2, sequenceTokens: 64, blockTokens: 4, threads: 2, pagesPerThread: 5 });
    assert.ok(rig.write(0, 0, 17, 6));
    rig.copyPrefix(0, 1, 11);
    // Four of six drafts are rejected, so the next row begins in the block after the shared one.
    assert.ok(rig.reserve(0, 15));
    assert.ok(rig.write(0, 13, 15));
    rig.check();
    assert.ok(rig.reserve(1, 14));
    assert.ok(rig.write(1, 11, 14));
    rig.check();
  });

  it("never touches unneeded pages, however long it runs", () => {
    const rig = new Rig({ slots: 3, sequenceTokens: 64, blockTokens: 8, threads: 2, pagesPerThread: 64 });
    for (let round = 0; round < 50; round++) {
      const slot = round % 3;
      rig.release(slot);
      assert.ok(rig.write(slot, 0, 1 + ((round * 7) % 32)));
    }
    assert.ok(rig.touchedPages <= 3 * 4, `${rig.touchedPages} pages`);
  });

  it("refuses to read or drop a dropped copy", () => {
    const table = new PageTable({ slots: 1, sequenceTokens: 8, blockTokens: 4, threads: 1, pagesPerThread: 4 });
    table.write(0, 0, 8);
    const saved = table.save(0);
    table.drop(saved);
    assert.throws(() => table.restore(0, saved, 4), /was dropped/);
    assert.throws(() => table.drop(saved), /was dropped/);
  });
});
