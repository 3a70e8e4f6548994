import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type PageShape, PageTable, type SavedPages } from "../../../engines/wasm/pages.ts";

/** A table with pages that hold tokens, and what each slot and copy must see. */
class Rig {
  readonly table: PageTable;
  readonly copies: { saved: SavedPages; tokens: number[] }[] = [];
  readonly #shape: PageShape;
  readonly #memory: number[][][];
  readonly #slots: number[][];
  #nextToken = 1;
  #writes: { slot: number; start: number }[] = [];

  constructor(shape: PageShape) {
    this.#shape = shape;
    this.table = new PageTable(shape);
    const room = { length: this.table.pagesPerThread };
    this.#memory = Array.from({ length: shape.threads }, () => Array.from(room, () => []));
    this.#slots = Array.from({ length: shape.slots }, () => []);
  }

  length(slot: number): number {
    return this.#slots[slot]!.length;
  }

  /** What a step does before its pass: one row of it. Nothing is written before flush(). */
  grow(slot: number, start: number, end: number): void {
    this.table.grow(slot, start, end);
    const tokens = this.#slots[slot]!;
    tokens.length = start;
    while (tokens.length < end) tokens.push(this.#nextToken++);
    this.#writes.push({ slot, start });
  }

  /** Makes the copies and then writes all new tokens. Returns how many copies there were. */
  flush(): number {
    const count = this.table.copies.length;
    for (const { thread, from, to } of this.table.copies) {
      const pages = this.#memory[thread]!;
      pages[to] = [...pages[from]!];
    }
    this.table.clearCopies();
    for (const { slot, start } of this.#writes) {
      for (let at = start; at < this.length(slot); at++) {
        this.#page(this.table.pages(slot), at)[at % this.#shape.blockTokens] = this.#slots[slot]![at]!;
      }
    }
    this.#writes = [];
    return count;
  }

  release(slot: number): void {
    this.table.release(slot);
    this.#slots[slot] = [];
    this.#writes = this.#writes.filter((write) => write.slot !== slot);
  }

  save(slot: number, replaced: number): boolean {
    const old = this.copies.slice(0, replaced);
    const saved = this.table.save(
      slot,
      old.map((copy) => copy.saved),
    );
    if (saved) this.copies.splice(0, replaced, { saved, tokens: [...this.#slots[slot]!] });
    return saved !== null;
  }

  restore(slot: number, copy: number, tokens: number): void {
    const { saved, tokens: known } = this.copies[copy]!;
    this.table.restore(slot, saved, tokens);
    this.#slots[slot] = known.slice(0, tokens);
  }

  check(): void {
    this.table.checkIntegrity();
    for (const [slot, tokens] of this.#slots.entries()) {
      assert.equal(this.table.length(slot), tokens.length);
      this.#checkTokens(this.table.pages(slot), tokens, `slot ${slot}`);
    }
    for (const [at, { saved, tokens }] of this.copies.entries()) this.#checkTokens(saved.pages, tokens, `copy ${at}`);
  }

  #checkTokens(pages: Int32Array, tokens: readonly number[], holder: string): void {
    const seen = tokens.map((_, at) => this.#page(pages, at)[at % this.#shape.blockTokens]);
    assert.deepEqual(seen, [...tokens], holder);
  }

  #page(pages: Int32Array, token: number): number[] {
    const block = Math.floor(token / this.#shape.blockTokens);
    return this.#memory[block % this.#shape.threads]![pages[block]!]!;
  }
}

const shapes = fc.record({
  slots: fc.integer({ min: 1, max: 4 }),
  sequenceTokens: fc.integer({ min: 1, max: 40 }),
  blockTokens: fc.constantFrom(1, 4, 8),
  threads: fc.integer({ min: 1, max: 3 }),
  savedPages: fc.integer({ min: 0, max: 12 }),
});
/** Numbers of an operation are fractions of what is possible when it runs. */
const fraction = fc.double({ min: 0, max: 1, noNaN: true });
const operations = fc.array(
  fc.record({
    kind: fc.constantFrom("append", "append", "rewind", "release", "save", "restore"),
    a: fraction,
    b: fraction,
    c: fraction,
  }),
  { maxLength: 60 },
);

function run(rig: Rig, shape: PageShape, { kind, a, b, c }: { kind: string; a: number; b: number; c: number }): void {
  const slot = Math.min(Math.floor(a * shape.slots), shape.slots - 1);
  const length = rig.length(slot);
  if (kind === "append" || kind === "rewind") {
    const start = kind === "append" ? length : Math.floor(b * length);
    // Two rows of one step, where there are two slots: the copies for both are made together.
    rig.grow(slot, start, start + Math.floor(c * (shape.sequenceTokens - start)));
    const other = (slot + 1) % shape.slots;
    if (other !== slot && rig.length(other) < shape.sequenceTokens)
      rig.grow(other, rig.length(other), rig.length(other) + 1);
    rig.flush();
  } else if (kind === "release") rig.release(slot);
  else if (kind === "save") rig.save(slot, Math.floor(b * (rig.copies.length + 0.99)));
  else if (rig.copies.length > 0) {
    const copy = Math.min(Math.floor(b * rig.copies.length), rig.copies.length - 1);
    rig.release(slot);
    rig.restore(slot, copy, Math.floor(c * rig.copies[copy]!.tokens.length));
  }
}

describe("the page table", () => {
  it("shows every slot and every copy its own tokens, and never runs out, whatever happens in whatever order", () => {
    fc.assert(
      fc.property(shapes, operations, (shape, list) => {
        const rig = new Rig(shape);
        for (const operation of list) {
          run(rig, shape, operation);
          rig.check();
        }
      }),
      { numRuns: 300 },
    );
  });

  it("has room for all slots at their longest beside all the copies it may keep, each first page being copied on write", () => {
    const shape = { slots: 3, sequenceTokens: 50, blockTokens: 8, threads: 2, savedPages: 8 };
    const rig = new Rig(shape);
    // One block each: all of them lie with thread 0.
    for (let i = 0; i < 9; i++) {
      rig.grow(0, 0, 5);
      rig.flush();
      assert.equal(rig.save(0, 0), i < 4);
      rig.release(0);
    }
    for (const slot of [0, 1, 2]) rig.restore(slot, slot, 5);
    for (const slot of [0, 1, 2]) rig.grow(slot, 5, 50);
    assert.equal(rig.flush(), 3);
    rig.check();
  });

  it("copies nothing on save and restore, and then only the page of a last block that somebody writes into", () => {
    const rig = new Rig({ slots: 3, sequenceTokens: 64, blockTokens: 8, threads: 2, savedPages: 8 });
    rig.grow(0, 0, 20);
    assert.equal(rig.flush(), 0);
    assert.ok(rig.save(0, 0));
    rig.restore(1, 0, 20);
    rig.restore(2, 0, 16);
    assert.deepEqual([...rig.table.pages(1).subarray(0, 3)], [...rig.table.pages(0).subarray(0, 3)]);
    assert.equal(rig.table.copies.length, 0);
    rig.grow(0, 20, 21);
    rig.grow(1, 20, 30);
    rig.grow(2, 16, 30);
    assert.deepEqual(
      rig.table.copies.map(({ thread }) => thread),
      [0, 0],
    );
    rig.flush();
    rig.grow(0, 21, 22);
    assert.equal(rig.flush(), 0);
    rig.check();
  });

  it("refuses a copy there is no room for and keeps the old ones; takes it in place of enough of them", () => {
    const rig = new Rig({ slots: 2, sequenceTokens: 64, blockTokens: 8, threads: 1, savedPages: 6 });
    for (let i = 0; i < 3; i++) {
      rig.grow(0, 0, 16);
      rig.flush();
      assert.ok(rig.save(0, 0));
      rig.release(0);
    }
    rig.grow(1, 0, 25);
    rig.flush();
    for (const replaced of [0, 1]) assert.equal(rig.save(1, replaced), false);
    rig.check();
    assert.ok(rig.save(1, 2));
    assert.equal(rig.copies.length, 2);
    rig.check();
  });

  it("refuses to read a copy that was replaced", () => {
    const table = new PageTable({ slots: 1, sequenceTokens: 8, blockTokens: 4, threads: 1, savedPages: 4 });
    table.grow(0, 0, 8);
    const old = table.save(0, [])!;
    assert.ok(table.save(0, [old]));
    table.release(0);
    assert.throws(() => table.restore(0, old, 4), /was replaced/);
    assert.throws(() => table.save(0, [old]), /was replaced/);
  });
});
