// Image decoder: cuts pictures into tiles. test/server/hostile/mutants.test.ts tests damaged files.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import sharp from "sharp";
import type { TilingRules } from "../../../engines/files/projector/image-rules.ts";
import { cutImage } from "../../../engines/image-input/image-decoder.ts";
import type { Tile } from "../../../engines/wasm/vision/image-encoder.ts";

const rules: TilingRules = {
  tileSize: 28,
  variable: null,
  gridEdge: null,
  slices: null,
  kernel: "linear",
  padding: [10, 20, 30],
  mean: [0.5, 0.5, 0.5],
  deviation: [0.5, 0.5, 0.5],
};

const options = { maxEdge: null, client: "a", isFrame: false };
const frame = { ...options, isFrame: true };

const red = (width: number, height: number) => sharp({ create: { width, height, channels: 3, background: "#f00" } });

function pixelAt(tile: Tile | undefined, x: number, y: number): number[] {
  const at = (y * rules.tileSize + x) * 3;
  return [...(tile?.pixels.subarray(at, at + 3) ?? [])];
}

describe("the image decoder", () => {
  it("scales an image to fit a tile, and pads it on both sides", async () => {
    const { grid, tiles } = await cutImage(await red(56, 28).png().toBuffer(), rules, options);
    assert.equal(grid, null);
    assert.equal(tiles.length, 1);
    assert.deepEqual(pixelAt(tiles[0], 14, 14), [255, 0, 0]);
    assert.deepEqual(pixelAt(tiles[0], 14, 2), [10, 20, 30]);
    assert.deepEqual(pixelAt(tiles[0], 14, 26), [10, 20, 30]);
  });

  it("cuts a grid of tiles, with the whole image as the last one", async () => {
    const { grid, tiles } = await cutImage(await red(40, 20).jpeg().toBuffer(), { ...rules, gridEdge: 56 }, options);
    assert.deepEqual(grid, { rows: 1, columns: 2 });
    assert.deepEqual(
      tiles.map(({ pixels }) => pixels.length),
      [1, 2, 3].map(() => rules.tileSize ** 2 * 3),
    );
  });

  it("makes one tile of a frame of a video, whose size is limited", async () => {
    const png = await red(112, 56).png().toBuffer();
    const sizesOf = async (changes: Partial<TilingRules>) => {
      const { grid, tiles } = await cutImage(png, { ...rules, ...changes }, frame);
      assert.equal(grid, null);
      assert.deepEqual(pixelAt(tiles[0], 0, 0), [255, 0, 0], "the frame is not padded");
      return tiles.map(({ width, height }) => [width, height]);
    };
    const side = rules.tileSize;
    assert.deepEqual(await sizesOf({ gridEdge: 112 }), [[side, side]]);
    assert.deepEqual(await sizesOf({ slices: { kind: "grids", grids: [[2, 1]] } }), [[side, side]]);
    const variable = { unit: 14, minPixels: 4 * 14 ** 2, maxPixels: 4096 * 14 ** 2, maxFramePixels: 8 * 14 ** 2 };
    assert.deepEqual(await sizesOf({ tileSize: 0, variable: { ...variable, maxEdge: null } }), [[56, 28]]);
  });

  it("makes one tile of a size near the image's, like mtmd", async () => {
    const variable = {
      unit: 28,
      minPixels: 8 * 28 ** 2,
      maxPixels: 4096 * 28 ** 2,
      maxFramePixels: 9 * 28 ** 2,
      maxEdge: null,
    };
    type Limits = NonNullable<TilingRules["variable"]>;
    const sizeOf = async (width: number, height: number, limits: Limits = variable) => {
      const image = await red(width, height).png().toBuffer();
      const { tiles } = await cutImage(image, { ...rules, tileSize: 0, variable: limits }, options);
      assert.deepEqual(
        tiles.map((tile) => tile.pixels.length),
        [(tiles[0] as Tile).width * (tiles[0] as Tile).height * 3],
      );
      return tiles.map((tile) => [tile.width / 28, tile.height / 28])[0];
    };
    // llama.cpp's mtmd makes the same numbers of embeddings from these images.
    assert.deepEqual(await sizeOf(333, 777), [12, 28]);
    assert.deepEqual(await sizeOf(50, 20), [5, 2]);
    assert.deepEqual(await sizeOf(14, 300), [1, 11]);
    assert.deepEqual(await sizeOf(2500, 1700), [77, 52]);
    assert.deepEqual(await sizeOf(900, 180, { ...variable, maxEdge: 280 }), [10, 2]);
    // The limits of this model folder are so close that rounding both sides up leaves no size between them.
    const near = { ...variable, minPixels: 15 * 28 ** 2, maxPixels: 16 * 28 ** 2 };
    assert.deepEqual(await sizeOf(60, 40, near), [4, 3]);
    const narrow = { code: "invalid_value", message: /one side of 2 x 2000 pixels is too much longer/ };
    await assert.rejects(sizeOf(2, 2000, { ...variable, maxPixels: 16 * 28 ** 2 }), narrow);
  });

  it("turns an image upright, makes transparent pixels white, and scales larger images to max_edge", async () => {
    const clear = sharp({ create: { width: 9, height: 9, channels: 4, background: { r: 0, g: 0, b: 0, alpha: 0 } } });
    const { tiles } = await cutImage(await clear.webp().toBuffer(), rules, options);
    assert.deepEqual(pixelAt(tiles[0], 14, 14), [255, 255, 255]);
    const turned = await red(56, 28).jpeg().withMetadata({ orientation: 6 }).toBuffer();
    const upright = await cutImage(turned, rules, { ...options, maxEdge: 28 });
    assert.deepEqual(pixelAt(upright.tiles[0], 2, 14), [10, 20, 30]);
  });
});
