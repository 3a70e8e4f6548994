// Products of matrices with blocks of 32 columns: determines the order in which memory is read. loops.ts and tiles.ts
// compute the products. kernel-exports.ts specifies each function.
import { BLOCK, productsFor, recordBytes, tileColumns } from "./layout";
import { multiplyTile } from "./loops";

export { activationBytes, prepare } from "./activations";
export { isBlockQuant, useWideDot } from "./layout";
export { readRow } from "./reading";
export { matrixBytes, packRows } from "./rows";

/**
 * Size in bytes of a chunk of activations. A chunk is read again for every 16 rows of the matrix, so it should stay in
 * the L2 cache.
 */
const CHUNK_BYTES: i32 = 192 * 1024;
/** Minimum number of columns in a chunk, because the matrix is read from memory once per chunk. */
const CHUNK_COLUMNS: i32 = 16;

export function multiply(type: i32, matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  const products = productsFor(type);
  const blocks = k / BLOCK;
  const columnBytes = recordBytes(products, 1) * blocks;
  const chunk = max(CHUNK_COLUMNS, (CHUNK_BYTES / columnBytes) & ~3);
  const yBytes = stride << 2;
  for (let from = 0; from < n; from += chunk) {
    multiplyChunk(type, products, matrix, rows, blocks, x, min(chunk, n - from), y, yBytes);
    x += chunk * columnBytes;
    y += chunk * yBytes;
  }
}

/**
 * Multiplies the matrix by n columns of activations. 16 rows stay in the L1 cache while they are multiplied by all
 * columns.
 */
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
    let values = x,
      out = y;
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
