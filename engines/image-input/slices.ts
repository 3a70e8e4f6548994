// Slices: how a large image is cut into a grid of tiles of equal size, in addition to one tile of the whole image. Sizes are computed with
// 32-bit floats, as in llama.cpp's mtmd, so that both programs cut an image at the same pixels.
import type { SliceRules } from "../files/projector/image-rules.ts";

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Slicing {
  /** Size of the tile of the whole image in pixels. */
  readonly overview: Size;
  /** Grid of tiles, and the size in pixels of the whole grid; null = the image is not cut. */
  readonly grid: { readonly rows: number; readonly columns: number; readonly size: Size } | null;
}

const { fround } = Math;
/** Maximum number of tiles of a fitted grid. */
const maxFitted = 9;

/** Returns how an image of a given size is cut. `tileSize`: side of a tile in pixels; for fitted tiles, square root of their area. */
export function slice(image: Size, tileSize: number, rules: SliceRules): Slicing {
  const whole = { width: tileSize, height: tileSize };
  if (image.width <= tileSize && image.height <= tileSize) return { overview: whole, grid: null };
  if (rules.kind === "fitted") return fitted(image, tileSize, rules);
  const [columns, rows] = bestGrid(image, tileSize, rules.grids);
  return { overview: whole, grid: { rows, columns, size: { width: columns * tileSize, height: rows * tileSize } } };
}

/**
 * Returns the grid (columns, rows) in which the image keeps most of its pixels. If this applies to several grids, returns the one with the
 * least padding.
 */
function bestGrid(image: Size, tileSize: number, grids: readonly (readonly [number, number])[]) {
  let best = grids[0] as readonly [number, number];
  let mostPixels = 0;
  let leastPadding = Number.POSITIVE_INFINITY;
  for (const grid of grids) {
    const [width, height] = [grid[0] * tileSize, grid[1] * tileSize];
    const scale = Math.min(fround(width / image.width), fround(height / image.height));
    const scaled = Math.trunc(fround(image.width * scale)) * Math.trunc(fround(image.height * scale));
    const pixels = Math.min(scaled, image.width * image.height);
    const padding = width * height - pixels;
    if (pixels < mostPixels || (pixels === mostPixels && padding >= leastPadding)) continue;
    [best, mostPixels, leastPadding] = [grid, pixels, padding];
  }
  return best;
}

type FittedRules = Extract<SliceRules, { kind: "fitted" }>;

/** Returns a grid of about the image's aspect ratio, whose tiles have the area tileSize² and sides that are multiples of `unit`. */
function fitted(image: Size, tileSize: number, { unit, maxPixels }: FittedRules): Slicing {
  const area = fround(fround(image.width * image.height) / tileSize ** 2);
  const ratio = fround(Math.log(fround(image.width / image.height)));
  const [columns, rows] = fittedGrid(Math.min(Math.ceil(area), maxFitted), ratio);
  const part = {
    width: nearestMultiple(image.width, columns) / columns,
    height: nearestMultiple(image.height, rows) / rows,
  };
  const tile = fittedSize(part, tileSize, unit, true);
  const overview = fittedSize(image, tileSize, unit, false);
  for (const { width, height } of [tile, overview]) {
    if (width * height > maxPixels)
      throw new Error(
        `one side of ${image.width} x ${image.height} pixels is too much longer than the other for this model`,
      );
  }
  return {
    overview,
    grid: { rows, columns, size: { width: tile.width * columns, height: tile.height * rows } },
  };
}

/** Returns the columns and rows of about `tiles` tiles. `ratio`: logarithm of the image's aspect ratio. */
function fittedGrid(tiles: number, ratio: number): [number, number] {
  const grids = [tiles - 1, tiles, tiles + 1]
    .filter((count) => count !== 1 && count <= maxFitted)
    .flatMap((count) => divisors(count).map((columns): [number, number] => [columns, count / columns]));
  let best: [number, number] = [1, 1];
  let least = Number.POSITIVE_INFINITY;
  for (const grid of grids) {
    const error = fround(Math.abs(ratio - Math.log(grid[0] / grid[1])));
    if (error >= least) continue;
    [best, least] = [grid, error];
  }
  return best;
}

function divisors(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i + 1).filter((number) => count % number === 0);
}

/** Returns a size of the same aspect ratio and at most about tileSize² pixels. `enlarges`: smaller images are enlarged. */
function fittedSize({ width, height }: Size, tileSize: number, unit: number, enlarges: boolean): Size {
  if (width * height <= tileSize ** 2 && !enlarges)
    return { width: nearestMultiple(width, unit), height: nearestMultiple(height, unit) };
  const ratio = fround(width / height);
  const scaledHeight = Math.trunc(fround(tileSize / fround(Math.sqrt(ratio))));
  const scaledWidth = Math.trunc(fround(scaledHeight * ratio));
  return { width: nearestMultiple(scaledWidth, unit), height: nearestMultiple(scaledHeight, unit) };
}

function nearestMultiple(length: number, unit: number): number {
  return Math.max(Math.trunc(fround(Math.round(fround(length / unit)) * unit)), unit);
}
