// Activation quantisation: converts activations to 8-bit integers in the format of layout.ts. Called once for
// consecutive matrices with the same input and type. Every compute thread converts all activations itself.

import { MXFP4 } from "../types";
import {
  BLOCK,
  biasOf,
  NARROW,
  offsetIsSum,
  PAIRS,
  productsFor,
  recordBytes,
  stacksPairs,
  tileColumns,
  valueBytes,
} from "./layout";

/**
 * Minimum of the largest magnitude in a block. If the largest magnitude is smaller, all values of the block count as
 * zero, because 127 / magnitude must be finite.
 */
export const SMALLEST: f32 = 1e-30;
/**
 * Constant 1.5 * 2^23. A small float plus this constant is rounded to an integer, which is in the low bits of the sum.
 */
const ROUNDER: f32 = 12582912;

export function activationBytes(type: i32, n: i32, k: i32): i32 {
  return (n * (k / BLOCK) * recordBytes(productsFor(type), 1) + 15) & ~15;
}

export function prepare(type: i32, x: usize, stride: i32, n: i32, k: i32, out: usize): void {
  const products = productsFor(type);
  const blocks = k / BLOCK;
  let column = 0;
  while (column < n) {
    const columns = tileColumns(n - column);
    const record = recordBytes(products, columns);
    for (let c = 0; c < columns; c++) {
      prepareColumn(type, products, x + <usize>c * (stride << 2), blocks, out, c, columns, record);
    }
    x += <usize>columns * (stride << 2);
    out += <usize>record * blocks;
    column += columns;
  }
}

/**
 * Quantises one column of activations (the input of one token) and writes it as column `c` of a tile of `columns`
 * columns. `out`: address of the tile's first record. A record has one block of each column.
 */
function prepareColumn(
  type: i32,
  products: i32,
  x: usize,
  blocks: i32,
  out: usize,
  c: i32,
  columns: i32,
  record: i32,
): void {
  let values = out + c * valueBytes(products);
  let scales = out + columns * valueBytes(products) + (c << 2);
  const offsets = <usize>columns << 2;
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
    const sums = i32x4.add(
      i32x4.add(i32x4.add(x0, x1), i32x4.add(x2, x3)),
      i32x4.add(i32x4.add(x4, x5), i32x4.add(x6, x7)),
    );
    const q0 = i16x8.narrow_i32x4_s(x0, x1), q1 = i16x8.narrow_i32x4_s(x2, x3);
    const q2 = i16x8.narrow_i32x4_s(x4, x5), q3 = i16x8.narrow_i32x4_s(x6, x7);
    if (products == PAIRS) {
      const stacked = stacksPairs(type, products);
      v128.store(values, pairs(stacked, q0));
      v128.store(values, pairs(stacked, q1), 16);
      v128.store(values, pairs(stacked, q2), 32);
      v128.store(values, pairs(stacked, q3), 48);
    } else {
      v128.store(values, i8x16.narrow_i16x8_s(q0, q1));
      v128.store(values, i8x16.narrow_i16x8_s(q2, q3), 16);
    }
    // fp4Levels() returns doubled levels for MXFP4, so the scale is halved.
    store<f32>(scales, type == MXFP4 ? scale * 0.5 : scale);
    if (offsetIsSum(type, products)) store<f32>(scales + offsets, scale * <f32>lanesSum(sums));
    else store<i32>(scales + offsets, offset(type, products, sums));
    x += BLOCK << 2;
    values += record;
    scales += record;
  }
}

/**
 * Returns the larger magnitude of each lane, compared as integers. NaN counts as the largest magnitude. A NaN thus
 * makes its block's scale NaN, and the product too.
 */
// @ts-expect-error: decorator
@inline
export function larger(a: v128, b: v128): v128 {
  return i32x4.max_s(v128.and(a, i32x4.splat(0x7fffffff)), v128.and(b, i32x4.splat(0x7fffffff)));
}

// @ts-expect-error: decorator
@inline
export function largestMagnitude(a: v128, b: v128): f32 {
  let most = i32x4.max_s(a, b);
  most = i32x4.max_s(most, i32x4.shuffle(most, most, 2, 3, 0, 1));
  most = i32x4.max_s(most, i32x4.shuffle(most, most, 1, 0, 3, 2));
  return f32x4.extract_lane(most, 0);
}

// @ts-expect-error: decorator
@inline
export function lanesSum(a: v128): i32 {
  a = i32x4.add(a, i32x4.shuffle(a, a, 2, 3, 0, 1));
  a = i32x4.add(a, i32x4.shuffle(a, a, 1, 0, 3, 2));
  return i32x4.extract_lane(a, 0);
}

/** Returns x * factor, rounded to the nearest integer. */
// @ts-expect-error: decorator
@inline
export function rounded(x: v128, factor: v128): v128 {
  return i32x4.sub(f32x4.add(f32x4.mul(x, factor), f32x4.splat(ROUNDER)), f32x4.splat(ROUNDER));
}

/**
 * Reorders every four activations to 0 2 1 3. For stacked operands (see stacksPairs()), first subtracts 256 times each
 * even activation from the next odd activation.
 */
// @ts-expect-error: decorator
@inline
function pairs(stacked: bool, a: v128): v128 {
  if (stacked) a = i16x8.sub(a, i32x4.shl(a, 24));
  return i16x8.shuffle(a, a, 0, 2, 1, 3, 4, 6, 5, 7);
}

/**
 * Returns the initial value of a block's sums, which cancels the bias of the weights. Lane i of `sums` has the sum of
 * activations i, i + 4, i + 8 and so on.
 */
// @ts-expect-error: decorator
@inline
function offset(type: i32, products: i32, sums: v128): i32 {
  const bias = biasOf(type);
  const even = i32x4.extract_lane(sums, 0) + i32x4.extract_lane(sums, 2);
  // With method PAIRS, only even weights have a bias, because flippedBits() makes only even bytes unsigned.
  if (bias == 128 && products == PAIRS) return -128 * even;
  if (products != NARROW) return -bias * lanesSum(sums);
  // The 16-bit sums may overflow while they are added up. Their final value is in range, because the bias is cancelled.
  const lower = i32x4.extract_lane(sums, 0) + i32x4.extract_lane(sums, 1);
  const upper = i32x4.extract_lane(sums, 2) + i32x4.extract_lane(sums, 3);
  return (-bias * lower & 0xffff) | (-bias * upper << 16);
}
