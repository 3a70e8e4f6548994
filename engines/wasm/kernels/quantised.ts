// Owns products of quantised matrices (Q8_0, Q4_0, Q4_1): in which order they go through memory, and which inner loop
// does it. kernels.ts sends those types here; kernel-exports.ts says what each function promises.
import { BLOCK, NARROW, PAIRS, productsFor, recordBytes, tileColumns, WIDE } from "./quantised-layout";
import { tileOf1, tileOf2, tileOf4 } from "./quantised-tiles";
import { Q4_0, Q4_1, Q8_0 } from "./types";

export { activationBytes, prepare } from "./quantised-activations";
export { useWideDot } from "./quantised-layout";
export { matrixBytes, packRows, readRow } from "./quantised-rows";

/** Activations that are read again and again, while all rows pass by, should stay in the second-level cache. */
const CHUNK_BYTES: i32 = 192 * 1024;
/** But the rows come from memory once a chunk. */
const CHUNK_COLUMNS: i32 = 16;

export function multiply(type: i32, matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  const products = productsFor(type);
  const blocks = k / BLOCK;
  const columnBytes = recordBytes(products, 1) * blocks;
  const chunk = max(CHUNK_COLUMNS, CHUNK_BYTES / columnBytes & ~3);
  const yBytes = stride << 2;
  for (let from = 0; from < n; from += chunk) {
    multiplyChunk(type, products, matrix, rows, blocks, x, min(chunk, n - from), y, yBytes);
    x += chunk * columnBytes;
    y += chunk * yBytes;
  }
}

/** 16 rows at a time stay in the first-level cache while they meet each of n columns. */
function multiplyChunk(
  type: i32,
  products: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  x: usize,
  n: i32,
  y: usize,
  yBytes: i32,
): void {
  const columnBytes = recordBytes(products, 1) * blocks;
  for (let group = 0; group < rows >> 4; group++) {
    let values = x, out = y;
    let left = n;
    while (left > 0) {
      const columns = tileColumns(left);
      multiplyTile(type, products, columns, matrix, rows, blocks, group, values, out, yBytes);
      values += columns * columnBytes;
      out += columns * yBytes;
      left -= columns;
    }
  }
}

/** One tile. Here the numbers of types and of ways become constants, each pair a loop of its own. */
function multiplyTile(
  type: i32,
  products: i32,
  columns: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
  yBytes: i32,
): void {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (products == WIDE) {
      if (type == Q8_0) wideQ8_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q4_0) wideQ4_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else wideQ4_1(columns, matrix, rows, blocks, group, x, y, yBytes);
    } else {
      if (type == Q8_0) pairsQ8_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q4_0) narrowQ4_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else narrowQ4_1(columns, matrix, rows, blocks, group, x, y, yBytes);
    }
  } else {
    if (type == Q8_0) pairsQ8_0(columns, matrix, rows, blocks, group, x, y, yBytes);
    else if (type == Q4_0) pairsQ4_0(columns, matrix, rows, blocks, group, x, y, yBytes);
    else pairsQ4_1(columns, matrix, rows, blocks, group, x, y, yBytes);
  }
}

function wideQ8_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q8_0, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideQ4_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_0, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideQ4_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_1, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowQ4_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_0, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowQ4_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_1, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ8_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q8_0, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ4_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_0, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ4_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_1, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

// @ts-ignore: decorator
@inline
function tile(
  type: i32,
  products: i32,
  columns: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
  yBytes: i32,
): void {
  if (columns == 4) {
    tileOf4(type, products, matrix, rows, blocks, group, x, y, yBytes);
    tileOf4(type, products, matrix, rows, blocks, group + (rows >> 4), x, y, yBytes);
  } else if (columns == 2) {
    tileOf2(type, products, matrix, rows, blocks, group, x, y, yBytes);
  } else {
    tileOf1(type, products, matrix, rows, blocks, group, x, y);
  }
}
