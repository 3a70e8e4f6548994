import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { divide, headUnit, type Share } from "../../../engines/wasm/blueprint.ts";
import type { Matrix } from "../../../engines/wasm/graph.ts";

function matrix(name: string, rows: number): Matrix {
  return { tensor: { name, type: 0, shape: [64, rows], file: 0, offset: 0, bytes: rows * 256 }, rows, columns: 64 };
}

/** Which thread computes each column of the joined rows; fails where two do. */
function owners(shares: readonly Share[]): number[] {
  const owner: number[] = [];
  shares.forEach(({ pieces }, thread) => {
    for (const { column, rows } of pieces) {
      for (let i = 0; i < rows; i++) {
        assert.equal(owner[column + i], undefined, `column ${column + i} is computed twice`);
        owner[column + i] = thread;
      }
    }
  });
  return owner;
}

describe("dividing matrices between threads", () => {
  it("gives every row to exactly one thread, whatever the number of rows and threads", () => {
    for (const rows of [16, 17, 48, 576, 1000, 49_152]) {
      for (const threads of [1, 2, 3, 7, 16]) {
        const shares = divide([matrix("a", rows)], 16, threads);
        const owner = owners(shares);
        assert.equal(owner.length, rows);
        assert.ok(owner.every((thread) => thread !== undefined));
      }
    }
  });

  it("gives threads whole heads, and nearly equally many", () => {
    const [query, key, value] = [matrix("q", 9 * 64), matrix("k", 3 * 64), matrix("v", 3 * 64)];
    const shares = divide([query, key, value], headUnit(64), 2);
    assert.deepEqual(
      shares.map(({ pieces }) => pieces.reduce((sum, { rows }) => sum + rows, 0)),
      [7 * 64, 8 * 64],
    );
    for (const { firstRow, rows } of shares.flatMap(({ pieces }) => pieces)) {
      assert.equal(firstRow % 64, 0);
      assert.equal(rows % 64, 0);
    }
    assert.equal(owners(shares).length, 15 * 64);
  });

  it("pads a piece to whole groups of rows without moving those behind it in the joined rows", () => {
    const [first, second] = [matrix("q", 40), matrix("k", 24)];
    const [share] = divide([first, second], headUnit(8), 1) as [Share];
    assert.deepEqual(
      share.pieces.map(({ rows, padded, slabColumn, column }) => ({ rows, padded, slabColumn, column })),
      [
        { rows: 40, padded: 48, slabColumn: 0, column: 0 },
        { rows: 24, padded: 32, slabColumn: 48, column: 40 },
      ],
    );
    assert.equal(share.stride, 80);
  });

  it("leaves threads without work where there are more of them than units", () => {
    const shares = divide([matrix("a", 32)], 16, 5);
    assert.equal(shares.filter(({ pieces }) => pieces.length === 0).length, 3);
    assert.equal(owners(shares).length, 32);
  });

  it("takes as a head's unit the least multiple of 16 rows that holds whole heads", () => {
    assert.deepEqual([4, 8, 16, 24, 64, 80, 96, 100].map(headUnit), [16, 16, 16, 48, 64, 80, 96, 400]);
  });
});
