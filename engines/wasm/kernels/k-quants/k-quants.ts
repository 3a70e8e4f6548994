// Products of matrices with super-blocks of 256 columns (Q2_K to Q6_K, IQ4_XS): determines the order in which memory is
// read. loops.ts computes the products. kernel-exports.ts specifies each function.
import { BLOCK } from "../block-quants/layout";
import { activationRecordBytes, SUPER, superProducts, superTileColumns } from "./layout";
import { multiplyTile } from "./loops";

export { activationBytes, activationForm, prepare } from "./activations";
export { hasSuperBlocks } from "./layout";
export { matrixBytes, packRows, readRow } from "./rows";

/**
 * Size of a chunk of activations in bytes, and minimum number of columns in a chunk; the same as in block-quants.ts.
 */
const CHUNK_BYTES: i32 = 192 * 1024;
const CHUNK_COLUMNS: i32 = 16;

export function multiply(type: i32, matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  const products = superProducts(type);
  const supers = k / SUPER;
  const columnBytes = activationRecordBytes(products, 1) * (k / BLOCK);
  const chunk = max(CHUNK_COLUMNS, (CHUNK_BYTES / columnBytes) & ~3);
  const yBytes = (<usize>stride) << 2;
  for (let from = 0; from < n; from += chunk) {
    const end = min(chunk, n - from);
    // 16 rows stay in the L1 cache while they are multiplied by all columns of the chunk.
    for (let group = 0; group < rows >> 4; group++) {
      let values = x,
        out = y;
      for (let column = 0; column < end; ) {
        const columns = superTileColumns(end - column);
        multiplyTile(type, products, columns, matrix, rows, supers, group, values, out, yBytes);
        values += columns * columnBytes;
        out += <usize>columns * yBytes;
        column += columns;
      }
    }
    x += chunk * columnBytes;
    y += <usize>chunk * yBytes;
  }
}
