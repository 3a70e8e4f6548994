// Program that decodes one image and cuts it into tiles. It reads the encoded image from stdin and writes the tiles to stdout: a line of
// JSON, then the pixels of each tile, RGB, row by row. It runs in a separate process with limits of time and memory, because a damaged file
// may attack the decoder.
import { parseArgs } from "node:util";
import type { Sharp } from "sharp";
import type { SliceRules, TilingRules } from "../files/projector/image-rules.ts";
import { runImageProgram } from "./image-program.ts";
import { type Size, type Slicing, slice } from "./slices.ts";

/** Arguments of the program. `maxPixels` is checked before pixels are decoded. */
const { values } = parseArgs({
  options: {
    ...{ rules: { type: "string" }, maxPixels: { type: "string" }, maxEdge: { type: "string" } },
    isFrame: { type: "boolean", default: false },
  },
});
const rules = JSON.parse(values.rules ?? "") as TilingRules;
const { isFrame } = values;

/** First line of the output, as JSON: grid and sizes of the tiles. */
export interface CutHead {
  readonly grid: { readonly rows: number; readonly columns: number } | null;
  readonly sizes: readonly Size[];
}

interface Cut {
  readonly grid: CutHead["grid"];
  readonly tiles: readonly { readonly size: Size; readonly pixels: Buffer }[];
}

runImageProgram<CutHead>(async (sharp, bytes) => {
  const maxPixels = Number(values.maxPixels);
  const open = (limitInputPixels: number | false) => sharp(bytes, { limitInputPixels, failOn: "error", pages: 1 });
  // The image's header is read without a limit, because sharp's own error does not state the size.
  const { width = 0, height = 0, format } = await open(false).metadata();
  if (width < 1 || height < 1) throw new Error(`an image of ${width} x ${height} pixels (${format}) cannot be shown`);
  if (width * height > maxPixels) throw new Error(`it has ${width} x ${height} pixels`);
  // Rotates the image by its EXIF orientation, and makes transparent pixels white.
  const upright = open(maxPixels).autoOrient().flatten({ background: "#fff" }).toColourspace("srgb");
  const longest = Number(values.maxEdge);
  const limited = longest > 0 ? upright.resize(longest, longest, { fit: "inside", withoutEnlargement: true }) : upright;
  const { data, info } = await limited.removeAlpha().raw({ depth: "uchar" }).toBuffer({ resolveWithObject: true });
  const whole = sharp(data, { raw: { width: info.width, height: info.height, channels: info.channels as 1 | 3 } });
  const { grid, tiles } = await cut(whole, { width: info.width, height: info.height });
  return { head: { grid, sizes: tiles.map(({ size }) => size) }, parts: tiles.map(({ pixels }) => pixels) };
});

async function cut(image: Sharp, size: Size): Promise<Cut> {
  const { gridEdge, variable, slices, tileSize } = rules;
  if (gridEdge !== null) return isFrame ? await stretched(image, size) : await grid(image, size, gridEdge);
  if (slices !== null) return await sliced(image, size, slices);
  return await padded(image, size, variable ? fittingSize(size, variable) : { width: tileSize, height: tileSize });
}

/**
 * Returns the size of a tile of variable size. Numbers are rounded to 32-bit floats where llama.cpp's mtmd does so, because a small
 * difference can change the result by a whole unit.
 */
function fittingSize({ width, height }: Size, variable: NonNullable<TilingRules["variable"]>): Size {
  const { fround } = Math;
  const { unit } = variable;
  const maxPixels = isFrame ? variable.maxFramePixels : variable.maxPixels;
  const minPixels = Math.min(variable.minPixels, maxPixels);
  const units = (length: number, round: (value: number) => number) => round(fround(fround(length) / unit)) * unit;
  let size = { width: Math.max(units(width, Math.round), unit), height: Math.max(units(height, Math.round), unit) };
  const pixels = size.width * size.height;
  const pixelsOfImage = fround(fround(height) * width);
  if (pixels > maxPixels) {
    const factor = fround(Math.sqrt(fround(pixelsOfImage / maxPixels)));
    const reduced = (length: number) => Math.max(units(fround(length / factor), Math.floor), unit);
    size = { width: reduced(width), height: reduced(height) };
  } else if (pixels < minPixels) {
    const factor = fround(Math.sqrt(fround(minPixels / pixelsOfImage)));
    const enlarged = (length: number, round: (value: number) => number) =>
      Math.max(units(fround(length * factor), round), unit);
    size = { width: enlarged(width, Math.ceil), height: enlarged(height, Math.ceil) };
    // If the limits are close to each other, rounding a side up can exceed the upper limit.
    if (size.width * size.height > maxPixels) {
      size = { width: enlarged(width, Math.floor), height: enlarged(height, Math.floor) };
    }
  }
  if (size.width * size.height <= maxPixels) return size;
  throw new Error(`one side of ${width} x ${height} pixels is too much longer than the other for this model`);
}

/**
 * Returns a grid of tiles of the image, scaled to fit with padding on both sides; then the whole image, stretched to one tile. Frames of
 * videos have no grid.
 */
async function sliced(image: Sharp, size: Size, slices: SliceRules): Promise<Cut> {
  const { overview, grid } = slice(size, rules.tileSize, slices);
  const whole = { size: overview, pixels: await pixelsOf(resized(image.clone(), size, overview, rules.kernel)) };
  if (grid === null || isFrame) return { grid: null, tiles: [whole] };
  const refined = await raw(framed(image, size, grid.size, [0, 0, 0]));
  return { grid, tiles: [...(await tilesOf(refined, grid)), whole] };
}

/** Cuts an image into tiles, row by row. */
async function tilesOf(image: Sharp, { rows, columns, size }: NonNullable<Slicing["grid"]>): Promise<Cut["tiles"]> {
  const tile = { width: size.width / columns, height: size.height / rows };
  const tiles: { size: Size; pixels: Buffer }[] = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const area = { left: column * tile.width, top: row * tile.height, ...tile };
      tiles.push({ size: tile, pixels: await pixelsOf(image.clone().extract(area)) });
    }
  }
  return tiles;
}

/** Returns the whole image as one tile of size `target`, scaled to fit, with padding on both sides. */
async function padded(image: Sharp, size: Size, target: Size): Promise<Cut> {
  return { grid: null, tiles: [{ size: target, pixels: await pixelsOf(framed(image, size, target, rules.padding)) }] };
}

/** Returns the whole image stretched to one tile. */
async function stretched(image: Sharp, size: Size): Promise<Cut> {
  const tile = { width: rules.tileSize, height: rules.tileSize };
  return { grid: null, tiles: [{ size: tile, pixels: await pixelsOf(resized(image, size, tile, rules.kernel)) }] };
}

/** Returns the image in a frame of size `target`, scaled to fit. */
function framed(image: Sharp, { width, height }: Size, target: Size, padding: TilingRules["padding"]): Sharp {
  const { kernel } = rules;
  const { fround } = Math;
  const scale = Math.min(fround(target.width / width), fround(target.height / height));
  const size = {
    width: Math.min(Math.ceil(fround(width * scale)), target.width),
    height: Math.min(Math.ceil(fround(height * scale)), target.height),
  };
  const left = Math.floor((target.width - size.width) / 2);
  const top = Math.floor((target.height - size.height) / 2);
  return resized(image, { width, height }, size, kernel).extend({
    ...{ left, top, right: target.width - size.width - left, bottom: target.height - size.height - top },
    background: { r: padding[0], g: padding[1], b: padding[2] },
  });
}

/** Returns a grid of tiles of the image, scaled to `longestEdge` and stretched to whole tiles; then the whole image as one tile. */
async function grid(image: Sharp, size: Size, longestEdge: number): Promise<Cut> {
  const { tileSize, kernel } = rules;
  const aspect = size.width / size.height;
  const even = (length: number) => Math.max(Math.trunc(length) + (Math.trunc(length) % 2), 2);
  const target =
    size.width >= size.height
      ? { width: longestEdge, height: even(longestEdge / aspect) }
      : { width: even(longestEdge * aspect), height: longestEdge };
  const columns = Math.ceil(target.width / tileSize);
  const rows = Math.ceil(target.height / tileSize);
  const stretched = { width: columns * tileSize, height: rows * tileSize };
  const first = await raw(resized(image, size, target, kernel));
  const refined = await raw(resized(first, target, stretched, kernel));
  const tile = { width: tileSize, height: tileSize };
  const tiles = await tilesOf(refined, { rows, columns, size: stretched });
  const whole = { size: tile, pixels: await pixelsOf(resized(refined.clone(), stretched, tile, kernel)) };
  return { grid: { rows, columns }, tiles: [...tiles, whole] };
}

function resized(image: Sharp, from: Size, to: Size, kernel: TilingRules["kernel"]): Sharp {
  if (from.width === to.width && from.height === to.height) return image;
  return image.resize(to.width, to.height, { fit: "fill", kernel, fastShrinkOnLoad: false });
}

async function raw(image: Sharp): Promise<Sharp> {
  const { default: sharp } = await import("sharp");
  const { data, info } = await image.removeAlpha().toColourspace("srgb").raw().toBuffer({ resolveWithObject: true });
  return sharp(data, { raw: { width: info.width, height: info.height, channels: 3 } });
}

async function pixelsOf(image: Sharp): Promise<Buffer> {
  return await image.removeAlpha().toColourspace("srgb").raw({ depth: "uchar" }).toBuffer();
}
