// Tile: four blocks of a row, transposed, so that lane b of vector i has value i of block b. The searches work on a
// tile: they find the scales of four blocks at once and need no sums across lanes. Values are divided by a power of two
// near the largest value, so no sum of squares overflows or vanishes.
import { IQ4_NL, IQ4_XS, Q4_K, Q5_K, Q6_K } from "../../../../wasm/kernels/types";

/** Values of the tile. A block has at most 32. */
export const VALUES: usize = memory.data(512, 16);
/** Positive weights of the values' squared errors. */
export const WEIGHTS: usize = memory.data(512, 16);
/** Values times weights, for the searches. */
export const PRODUCTS: usize = memory.data(512, 16);
/** Added to every weight, so that a block of zeros has weights, too. */
const LEAST_WEIGHT: f32 = 1e-20;
/** Blocks whose values all have smaller magnitudes are encoded as zeros, because their scales would be zero in every format. */
export const NEGLIGIBLE: f32 = 1e-30;

/** Returns the largest magnitude of `count` floats; `count` is a multiple of 8. */
export function largestOf(at: usize, count: i32): f32 {
  let a = f32x4.splat(0), b = a;
  for (const end = at + (<usize>count << 2); at < end; at += 32) {
    a = f32x4.pmax(a, f32x4.abs(v128.load(at)));
    b = f32x4.pmax(b, f32x4.abs(v128.load(at, 16)));
  }
  return largestLane(f32x4.pmax(a, b));
}

// @ts-expect-error: decorator
@inline
export function largestLane(x: v128): f32 {
  const pairs = f32x4.pmax(x, i32x4.shuffle(x, x, 2, 3, 0, 1));
  return f32x4.extract_lane(f32x4.pmax(pairs, i32x4.shuffle(pairs, pairs, 1, 0, 3, 2)), 0);
}

/** Returns the largest power of two that is not above `x`; `x` is normal and positive. */
// @ts-expect-error: decorator
@inline
export function powerBelow(x: f32): f32 {
  return reinterpret<f32>(reinterpret<i32>(x) & 0x7f800000);
}

/** Returns the mean square of `count` floats; `count` is a multiple of 4. */
export function meanSquare(at: usize, count: i32): f64 {
  let sum = f64x2.splat(0);
  for (const end = at + (<usize>count << 2); at < end; at += 16) {
    const x = v128.load(at);
    const low = f64x2.promote_low_f32x4(x), high = f64x2.promote_low_f32x4(i64x2.shuffle(x, x, 1, 0));
    sum = f64x2.add(sum, f64x2.add(f64x2.mul(low, low), f64x2.mul(high, high)));
  }
  return (f64x2.extract_lane(sum, 0) + f64x2.extract_lane(sum, 1)) / <f64>count;
}

/** Transposes four adjacent blocks of `length` floats, and multiplies them by `factor`. */
export function transpose(from: usize, length: i32, factor: f32, to: usize): void {
  const block = <usize>length << 2;
  const factors = f32x4.splat(factor);
  for (const end = from + block; from < end; from += 16, to += 64) {
    const a = f32x4.mul(v128.load(from), factors), b = f32x4.mul(v128.load(from + block), factors);
    const c = f32x4.mul(v128.load(from + block * 2), factors), d = f32x4.mul(v128.load(from + block * 3), factors);
    const abLow = i32x4.shuffle(a, b, 0, 4, 1, 5), abHigh = i32x4.shuffle(a, b, 2, 6, 3, 7);
    const cdLow = i32x4.shuffle(c, d, 0, 4, 1, 5), cdHigh = i32x4.shuffle(c, d, 2, 6, 3, 7);
    v128.store(to, i64x2.shuffle(abLow, cdLow, 0, 2));
    v128.store(to, i64x2.shuffle(abLow, cdLow, 1, 3), 16);
    v128.store(to, i64x2.shuffle(abHigh, cdHigh, 0, 2), 32);
    v128.store(to, i64x2.shuffle(abHigh, cdHigh, 1, 3), 48);
  }
}

/** Returns the mean square of each block of the tile. */
export function meanSquares(length: i32): v128 {
  let squares = f32x4.splat(0);
  for (let at: usize = 0; at < <usize>length << 4; at += 16) {
    const x = v128.load(VALUES + at);
    squares = f32x4.add(squares, f32x4.mul(x, x));
  }
  return f32x4.mul(squares, f32x4.splat(1 / <f32>length));
}

/**
 * Computes the weights of the tile from its values. Large values count more, because they contribute more to the
 * products of the matrix. Returns the sum of each block's weights.
 */
export function weigh(type: i32, length: i32): v128 {
  const bytes = <usize>length << 4;
  let base = f32x4.splat(LEAST_WEIGHT);
  if (type == Q4_K || type == Q5_K) base = f32x4.add(base, f32x4.sqrt(meanSquares(length)));
  const isSquare = type == IQ4_NL || type == IQ4_XS;
  let sum = f32x4.splat(0);
  for (let at: usize = 0; at < bytes; at += 16) {
    const x = v128.load(VALUES + at);
    const weight = f32x4.add(base, isSquare ? f32x4.mul(x, x) : f32x4.abs(x));
    v128.store(WEIGHTS + at, weight);
    sum = f32x4.add(sum, weight);
  }
  return sum;
}

/**
 * Computes the weights of the tile from the importance of its columns, which is in WEIGHTS. `spreads`: for each block, the mean square of
 * the values of the block, of its super-block or of its row, times a factor (by type). Returns the sum of each block's weights.
 */
// @ts-expect-error: decorator
@inline
export function weighImportance(type: i32, length: i32, spreads: v128): v128 {
  const bytes = <usize>length << 4;
  const least = f32x4.splat(LEAST_WEIGHT);
  let sum = f32x4.splat(0);
  for (let at: usize = 0; at < bytes; at += 16) {
    const x = v128.load(VALUES + at);
    let weight = v128.load(WEIGHTS + at);
    if (type != Q6_K) weight = f32x4.mul(weight, f32x4.sqrt(f32x4.add(spreads, f32x4.mul(x, x))));
    weight = f32x4.add(weight, least);
    v128.store(WEIGHTS + at, weight);
    sum = f32x4.add(sum, weight);
  }
  return sum;
}
