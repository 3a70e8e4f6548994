// Owns products of quantised matrices with blocks of 256 columns (Q2_K to Q6_K, IQ4_XS): in which order they go through
// memory. kernels.ts sends those types here; kernel-exports.ts says what each function promises.
import { BLOCK } from "./quantised-layout";
import {
  activationRecordBytes, BLOCKS, sharedColumns, SUPER, superProducts, superRecordBytes, superScaleBytes,
} from "./superblocks-layout";
import { multiplyColumn, multiplyColumns, PANEL, unpackGroup } from "./superblocks-loops";
import { PANEL_BYTES } from "./superblocks-panels";

export { activationBytes, activationForm, prepare } from "./superblocks-activations";
export { isSuperblock } from "./superblocks-layout";
export { matrixBytes, packRows, readRow } from "./superblocks-rows";

/** As in quantised.ts. */
const CHUNK_BYTES: i32 = 192 * 1024;
const CHUNK_COLUMNS: i32 = 16;

export function multiply(type: i32, matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  const supers = k / SUPER;
  const columnBytes = activationRecordBytes(superProducts(type), 1) * (k / BLOCK);
  const chunk = max(CHUNK_COLUMNS, CHUNK_BYTES / columnBytes & ~3);
  const yBytes = <usize>stride << 2;
  const shared = sharedColumns(n);
  for (let from = 0; from < n; from += chunk) {
    const count = min(chunk, n - from);
    const fours = min(max(shared - from, 0), count);
    for (let group = 0; group < rows >> 4; group++) {
      if (fours > 0) multiplyFours(type, matrix, rows, supers, group, x, fours, y, yBytes);
      for (let column = fours; column < count; column++) {
        multiplyColumn(type, matrix, rows, supers, group, x + column * columnBytes, y + <usize>column * yBytes);
      }
    }
    x += chunk * columnBytes;
    y += <usize>chunk * yBytes;
  }
}

/** 16 rows times n columns: 256 columns of these rows are taken apart at a time, and stay in the first-level cache. */
function multiplyFours(
  type: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, n: i32, y: usize, yBytes: usize,
): void {
  const recordBytes = superRecordBytes(type), scaleBytes = superScaleBytes(type);
  const apart = <usize>(rows >> 4) * supers;
  const gap = apart * recordBytes, superGap = apart * scaleBytes, below = <usize>rows;
  const tileBytes = <usize>activationRecordBytes(superProducts(type), 4) * BLOCKS;
  let record = matrix + <usize>group * supers * recordBytes;
  let scales = matrix + <usize>(rows >> 2) * supers * recordBytes + <usize>group * supers * scaleBytes;
  y += <usize>group << 4;
  clear(n, y, below, yBytes);
  for (let s: usize = 0; s < <usize>supers; s++) {
    for (let g: usize = 0; g < 4; g++) unpackGroup(type, record + g * gap, PANEL + g * PANEL_BYTES);
    let values = x + s * tileBytes, out = y;
    for (let column = 0; column < n; column += 4) {
      multiplyColumns(type, PANEL, record, gap, scales, superGap, values, out, below, yBytes);
      multiplyColumns(
        type, PANEL + PANEL_BYTES * 2, record + gap * 2, gap, scales + superGap * 2, superGap, values, out + below * 2,
        below, yBytes,
      );
      values += tileBytes * supers;
      out += yBytes * 4;
    }
    record += recordBytes;
    scales += scaleBytes;
  }
}

/** 16 rows of n columns of the product. */
function clear(n: i32, y: usize, below: usize, yBytes: usize): void {
  for (let column = 0; column < n; column++) {
    for (let g: usize = 0; g < 4; g++) v128.store(y + g * below, f32x4.splat(0));
    y += yBytes;
  }
}
