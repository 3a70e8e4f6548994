// Activation quantisation for types with super-blocks: converts activations to 8-bit integers in the format of
// layout.ts. The format depends only on the multiplication method, so matrices of several types can share prepared
// activations. Called once for consecutive matrices with the same input and format.

import { lanesSum, larger, largestMagnitude, rounded, SMALLEST } from "../block-quants/activations";
import { BLOCK } from "../block-quants/layout";
import {
  activationRecordBytes, NARROW, PAIRS, superProducts, superTileColumns, superValueBytes,
} from "./layout";

export function activationBytes(type: i32, n: i32, k: i32): i32 {
  return n * (k / BLOCK) * activationRecordBytes(superProducts(type), 1);
}

/** Returns the number of the activation format. Format numbers are larger than all type numbers. */
export function activationForm(type: i32): i32 {
  return 256 + superProducts(type);
}

export function prepare(type: i32, x: usize, stride: i32, n: i32, k: i32, out: usize): void {
  const products = superProducts(type);
  const blocks = k / BLOCK;
  let column = 0;
  while (column < n) {
    const columns = superTileColumns(n - column);
    for (let c = 0; c < columns; c++) {
      prepareColumn(products, x, blocks, out, c, columns);
      x += <usize>stride << 2;
    }
    out += <usize>activationRecordBytes(products, columns) * blocks;
    column += columns;
  }
}

/**
 * Quantises one column of activations (the input of one token) and writes it as column `c` of a tile of `columns`
 * columns. `out`: address of the tile's first record. A record has one block of each column.
 */
function prepareColumn(products: i32, x: usize, blocks: i32, out: usize, c: i32, columns: i32): void {
  let values = out + c * superValueBytes(products);
  let tail = out + columns * superValueBytes(products) + (c << 2);
  const word = <usize>columns << 2, record = <usize>activationRecordBytes(products, columns);
  for (let b = 0; b < blocks; b++) {
    let x0 = v128.load(x), x1 = v128.load(x, 16), x2 = v128.load(x, 32), x3 = v128.load(x, 48);
    let x4 = v128.load(x, 64), x5 = v128.load(x, 80), x6 = v128.load(x, 96), x7 = v128.load(x, 112);
    const largest = largestMagnitude(
      larger(larger(x0, x1), larger(x2, x3)),
      larger(larger(x4, x5), larger(x6, x7)),
    );
    const empty = largest < SMALLEST;
    const scale = empty ? <f32>0 : largest / 127;
    const factor = f32x4.splat(empty ? <f32>0 : <f32>127 / largest);
    x0 = rounded(x0, factor); x1 = rounded(x1, factor); x2 = rounded(x2, factor); x3 = rounded(x3, factor);
    x4 = rounded(x4, factor); x5 = rounded(x5, factor); x6 = rounded(x6, factor); x7 = rounded(x7, factor);
    const s0 = lanesSum(i32x4.add(x0, x1)), s1 = lanesSum(i32x4.add(x2, x3));
    const s2 = lanesSum(i32x4.add(x4, x5)), s3 = lanesSum(i32x4.add(x6, x7));
    store<f32>(tail, scale);
    store<f32>(tail + word, -scale * <f32>(s0 + s1 + s2 + s3));
    store<i32>(tail + word * 2, products == NARROW ? (-s0 & 0xffff) | (-s2 << 16) : -s0 - s1);
    store<i32>(tail + word * 3, products == NARROW ? (-s1 & 0xffff) | (-s3 << 16) : -s2 - s3);
    const q0 = i16x8.narrow_i32x4_s(x0, x1), q1 = i16x8.narrow_i32x4_s(x2, x3);
    const q2 = i16x8.narrow_i32x4_s(x4, x5), q3 = i16x8.narrow_i32x4_s(x6, x7);
    storeValues(products, q0, q1, q2, q3, values);
    x += BLOCK << 2;
    values += record;
    tail += record;
  }
}

/** Stores 32 values in the order of the operands: as 16-bit numbers for PAIRS, else as bytes. */
// @ts-expect-error: decorator
@inline
function storeValues(products: i32, q0: v128, q1: v128, q2: v128, q3: v128, out: usize): void {
  if (products == PAIRS) {
    v128.store(out, i16x8.shuffle(q0, q0, 0, 2, 1, 3, 4, 6, 5, 7));
    v128.store(out, i16x8.shuffle(q1, q1, 0, 2, 1, 3, 4, 6, 5, 7), 16);
    v128.store(out, i16x8.shuffle(q2, q2, 0, 2, 1, 3, 4, 6, 5, 7), 32);
    v128.store(out, i16x8.shuffle(q3, q3, 0, 2, 1, 3, 4, 6, 5, 7), 48);
    return;
  }
  const a = i8x16.narrow_i16x8_s(q0, q1), b = i8x16.narrow_i16x8_s(q2, q3);
  v128.store(out, products == NARROW ? i16x8.shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11) : a);
  v128.store(out, products == NARROW ? i16x8.shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15) : b, 16);
}
