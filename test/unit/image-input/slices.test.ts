// Image slices: the grid of tiles of a large image, and the tokens that delimit the tiles in a prompt. For sizes in the
// references of test/parity/image-input, the grids equal those that mtmd chose.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { SliceRules } from "../../../engines/files/projector/image-rules.ts";
import { imageParts, tileGrid } from "../../../engines/image-input/image-tokens.ts";
import { slice } from "../../../engines/image-input/slices.ts";

const fitted: SliceRules = { kind: "fitted", unit: 14, maxPixels: 2 * 112 ** 2 };
const grids: SliceRules = {
  kind: "grids",
  grids: [
    [1, 1],
    [1, 2],
    [2, 1],
    [2, 2],
  ],
};

describe("an image that is cut into tiles", () => {
  it("has fitted tiles of about its aspect ratio", () => {
    const { overview, grid } = slice({ width: 196, height: 140 }, 112, fitted);
    assert.deepEqual(overview, { width: 126, height: 98 });
    assert.deepEqual(grid, { rows: 2, columns: 2, size: { width: 252, height: 196 } });
    assert.deepEqual(slice({ width: 600, height: 450 }, 112, fitted).grid, {
      ...{ rows: 3, columns: 3, size: { width: 378, height: 294 } },
    });
  });

  it("has the grid that keeps most of its pixels with the least padding", () => {
    const gridOf = (width: number, height: number) => slice({ width, height }, 112, grids).grid;
    assert.deepEqual(gridOf(224, 112), { rows: 1, columns: 2, size: { width: 224, height: 112 } });
    assert.deepEqual(gridOf(90, 500), { rows: 2, columns: 1, size: { width: 112, height: 224 } });
    assert.deepEqual(gridOf(400, 400), { rows: 2, columns: 2, size: { width: 224, height: 224 } });
  });

  it("is one tile if it is no larger than a tile", () => {
    for (const rules of [fitted, grids]) {
      const whole = { overview: { width: 112, height: 112 }, grid: null };
      assert.deepEqual(slice({ width: 112, height: 20 }, 112, rules), whole);
    }
  });

  it("is refused if its tiles would have too many pixels", () => {
    assert.throws(() => slice({ width: 100_000, height: 2 }, 112, fitted), /too much longer than the other/);
  });
});

describe("the delimiter tokens of a cut image", () => {
  const grid = { rows: 2, columns: 1 };

  it("are those of the model's family", () => {
    const parts = (projector: "internvl" | "resampler", nestsSlices = false) =>
      imageParts({ projector, nestsSlices }, { grid });
    assert.deepEqual(parts("internvl"), ["<img>", 0, 1, 2, "</img>"]);
    const whole = ["<image>", 2, "</image>"];
    assert.deepEqual(parts("resampler"), [...whole, "<slice>", 0, "</slice>", "\n", "<slice>", 1, "</slice>"]);
    assert.deepEqual(parts("resampler", true), [
      ...[...whole, "<slice>", "<image>", 0, "</image>", "\n", "<image>", 1, "</image>", "</slice>"],
    ]);
  });

  it("count the ends of rows, and the queries of a resampler", () => {
    const tile = { width: 112, height: 56 };
    const rules = { cellSize: 28, tileTokens: 64 };
    assert.deepEqual(tileGrid({ ...rules, layout: "cells" }, tile), { rows: 2, columns: 4 });
    assert.deepEqual(tileGrid({ ...rules, layout: "rows" }, tile), { rows: 1, columns: 9 });
    assert.deepEqual(tileGrid({ ...rules, layout: "fixed" }, tile), { rows: 1, columns: 64 });
  });
});
