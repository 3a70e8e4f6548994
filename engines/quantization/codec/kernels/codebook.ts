// Types whose levels are unevenly spaced: search for the scales of IQ4_NL and IQ4_XS, and blocks of MXFP4. The levels and
// their order are those of the codebooks in engines/wasm/kernels/block-quants/codebook.ts.
import { sumOfLanes } from "../../../wasm/kernels/arithmetic";
import { fp4Levels, iq4Levels, lookUp } from "../../../wasm/kernels/block-quants/codebook";
import { levelsToBytes, storeFloats } from "./levels";
import { bestScales, inverseOf, keepBetterScale, multiplyWeights, peaks, startSearch } from "./symmetric";
import { largestOf, PRODUCTS, VALUES, WEIGHTS } from "./tile";

/** Midpoints between adjacent levels of IQ4_NL. */
const IQ4_MIDPOINTS: usize = memory.data<f32>([
  -115.5, -93.5, -74, -57, -42, -28.5, -16, -4.5, 7, 19, 31.5, 45.5, 61, 79, 101,
]);
const IQ4_BOUNDS: i32 = 15;
/** Extreme levels of IQ4_NL. Trials map the value of the largest magnitude to one of them, or up to a distance from it. */
const IQ4_LOWEST: f32 = -127;
const IQ4_HIGHEST: f32 = 113;
const IQ4_REACH: i32 = 12;
const IQ4_STEP: i32 = 4;
/** Midpoints between adjacent magnitudes of MXFP4, doubled as the levels are. */
const FP4_MIDPOINTS: usize = memory.data<f32>([0.5, 1.5, 2.5, 3.5, 5, 7, 10]);
const FP4_BOUNDS: i32 = 7;
/** Largest level. A larger value, in units of the smallest level, is clipped. */
const FP4_CLIPPED: f32 = 12;
const FP4_BLOCK: i32 = 32;
/** A block of MXFP4 with smaller values is encoded as zeros. */
const FP4_LEAST: f32 = 1e-30;

/** Finds the scales of the tile's blocks of 32, and stores four of them. */
export function searchLevels(scales: usize): void {
  const bytes: usize = 512;
  const inverse = inverseOf(peaks(bytes));
  multiplyWeights(bytes);
  startSearch();
  for (let i = -IQ4_REACH; i <= IQ4_REACH; i += IQ4_STEP) {
    tryLevels(bytes, f32x4.mul(inverse, f32x4.splat(IQ4_LOWEST + <f32>i)));
    tryLevels(bytes, f32x4.mul(inverse, f32x4.splat(IQ4_HIGHEST + <f32>i)));
  }
  v128.store(scales, bestScales());
}

/** Tries one factor from values to levels. */
function tryLevels(bytes: usize, factor: v128): void {
  let products = f32x4.splat(0), squares = products;
  for (let at: usize = 0; at < bytes; at += 64) {
    const codes = roughCodes(levelsToBytes(
      f32x4.mul(v128.load(VALUES + at), factor),
      f32x4.mul(v128.load(VALUES + at, 16), factor),
      f32x4.mul(v128.load(VALUES + at, 32), factor),
      f32x4.mul(v128.load(VALUES + at, 48), factor),
      0,
    ));
    const levels = lookUp(iq4Levels(), codes);
    const low = i16x8.extend_low_i8x16_s(levels), high = i16x8.extend_high_i8x16_s(levels);
    const a = f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low));
    const b = f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low));
    const c = f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high));
    const d = f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high));
    products = f32x4.add(products, f32x4.add(
      f32x4.add(f32x4.mul(a, v128.load(PRODUCTS + at)), f32x4.mul(b, v128.load(PRODUCTS + at, 16))),
      f32x4.add(f32x4.mul(c, v128.load(PRODUCTS + at, 32)), f32x4.mul(d, v128.load(PRODUCTS + at, 48))),
    ));
    squares = f32x4.add(squares, f32x4.add(
      f32x4.add(weighted(a, at), weighted(b, at + 16)),
      f32x4.add(weighted(c, at + 32), weighted(d, at + 48)),
    ));
  }
  keepBetterScale(products, squares);
}

// @ts-expect-error: decorator
@inline
function weighted(level: v128, at: usize): v128 {
  return f32x4.mul(f32x4.mul(level, level), v128.load(WEIGHTS + at));
}

/**
 * Returns the codes of the levels nearest to 16 numbers that are already rounded to integers. At most one midpoint lies
 * in each 16 integers, so one look-up gives the code below it and another the first integer above it.
 */
// @ts-expect-error: decorator
@inline
function roughCodes(integers: v128): v128 {
  const bins = i8x16.shr_u(v128.xor(integers, i8x16.splat(-128)), 4);
  const first = lookUp(i8x16(0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 14, 15), bins);
  const below = lookUp(
    i8x16(-116, 127, -94, -75, -58, -43, -29, -5, 6, 18, 45, 60, 78, 127, 100, 127),
    bins,
  );
  return i8x16.sub(first, i8x16.gt_s(integers, below));
}

/** Returns the codes of the levels of IQ4_NL that are nearest to 16 floats times `factor`. */
export function nearestCodes(at: usize, factor: f32): v128 {
  const factors = f32x4.splat(factor);
  const a = f32x4.mul(v128.load(at), factors), b = f32x4.mul(v128.load(at, 16), factors);
  const c = f32x4.mul(v128.load(at, 32), factors), d = f32x4.mul(v128.load(at, 48), factors);
  return countBounds(IQ4_MIDPOINTS, IQ4_BOUNDS, a, b, c, d);
}

/** Returns for each of 16 floats how many of `count` ascending bounds it reaches. */
// @ts-expect-error: decorator
@inline
function countBounds(bounds: usize, count: i32, a: v128, b: v128, c: v128, d: v128): v128 {
  let reachedA = i32x4.splat(0), reachedB = reachedA, reachedC = reachedA, reachedD = reachedA;
  for (let i = 0; i < count; i++) {
    const bound = v128.load32_splat(bounds + (i << 2));
    reachedA = i32x4.sub(reachedA, f32x4.ge(a, bound));
    reachedB = i32x4.sub(reachedB, f32x4.ge(b, bound));
    reachedC = i32x4.sub(reachedC, f32x4.ge(c, bound));
    reachedD = i32x4.sub(reachedD, f32x4.ge(d, bound));
  }
  return i8x16.narrow_i16x8_s(
    i16x8.narrow_i32x4_s(reachedA, reachedB),
    i16x8.narrow_i32x4_s(reachedC, reachedD),
  );
}

/**
 * Encodes a block of MXFP4: 32 values with one power of two as scale. `importance` is 0, or the address of the
 * columns' weights. If the largest value would be clipped, the next power of two is tried too.
 */
export function encodeFp4(x: usize, importance: usize, out: usize): void {
  const peak = largestOf(x, FP4_BLOCK);
  if (peak < FP4_LEAST) {
    memory.fill(out, 0, 17);
    return;
  }
  // The exponent of the scale that makes the largest value 4 to 8 units: two less than its own.
  let exponent = (reinterpret<i32>(peak) >> 23) - 2;
  const unit = fp4Unit(exponent);
  // Both errors are in the same unit, so that squares neither overflow nor vanish.
  if (peak / unit > FP4_CLIPPED && fp4Error(x, importance, unit * 2, 2) < fp4Error(x, importance, unit, 1)) exponent++;
  const inverse = <f32>1 / fp4Unit(exponent);
  store<u8>(out, <u8>exponent);
  v128.store(out, v128.or(fp4Codes(x, inverse), i8x16.shl(fp4Codes(x + 64, inverse), 4)), 1);
}

/** Returns the size of the smallest level: half of the scale 2^(exponent - 127), because the levels are doubled. */
// @ts-expect-error: decorator
@inline
function fp4Unit(exponent: i32): f32 {
  return reinterpret<f32>(exponent - 1 << 23);
}

function fp4Codes(at: usize, inverse: f32): v128 {
  const factors = f32x4.splat(inverse);
  const a = v128.load(at), b = v128.load(at, 16), c = v128.load(at, 32), d = v128.load(at, 48);
  const sizes = countBounds(
    FP4_MIDPOINTS, FP4_BOUNDS,
    f32x4.mul(f32x4.abs(a), factors), f32x4.mul(f32x4.abs(b), factors),
    f32x4.mul(f32x4.abs(c), factors), f32x4.mul(f32x4.abs(d), factors),
  );
  // Saturating narrowing keeps the signs.
  const signs = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d));
  const isNegative = v128.and(i8x16.lt_s(signs, i8x16.splat(0)), i8x16.ne(sizes, i8x16.splat(0)));
  return v128.or(sizes, v128.and(isNegative, i8x16.splat(8)));
}

/** Returns the weighted squared error of a block with a given unit. Errors are in units over `factor`. */
function fp4Error(x: usize, importance: usize, unit: f32, factor: f32): f32 {
  const decoded = PRODUCTS;
  const inverse = <f32>1 / unit;
  storeFloats(lookUp(fp4Levels(), fp4Codes(x, inverse)), unit, decoded);
  storeFloats(lookUp(fp4Levels(), fp4Codes(x + 64, inverse)), unit, decoded + 64);
  let sum = f32x4.splat(0);
  for (let at: usize = 0; at < 128; at += 16) {
    const error = f32x4.mul(f32x4.sub(v128.load(x + at), v128.load(decoded + at)), f32x4.splat(inverse * factor));
    const square = f32x4.mul(error, error);
    sum = f32x4.add(sum, importance ? f32x4.mul(square, v128.load(importance + at)) : square);
  }
  return sumOfLanes(sum);
}
