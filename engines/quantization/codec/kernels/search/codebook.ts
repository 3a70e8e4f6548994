// Search for a scale of each block of a tile, for IQ4_NL and IQ4_XS: value = scale * level, with the unevenly spaced levels of
// the codebook in engines/wasm/kernels/block-quants/codebook.ts. For each trial scale the best scale and its error follow from
// two sums, as in symmetric.ts.
import { iq4Levels, lookUp } from "../../../../wasm/kernels/block-quants/codebook";
import { levelsToBytes } from "../levels";
import { bestScales, inverseOf, keepBetterScale, multiplyWeights, peaks, startSearch } from "./symmetric";
import { PRODUCTS, VALUES, WEIGHTS } from "./tile";

/** Results of levelSums(): weighted sums of values times levels, and of squared levels. Each lane belongs to one block. */
export const PRODUCT_SUMS: usize = memory.data(16, 16);
export const SQUARE_SUMS: usize = memory.data(16, 16);
/** Extreme levels of IQ4_NL. */
const LOWEST: f32 = -127;
const HIGHEST: f32 = 113;
/** With importance, trials map the value of the largest magnitude to levels within this distance of both extreme levels. */
const WIDE_REACH: i32 = 8;
const WIDE_STEP: i32 = 4;
/** Without importance, trials map the value of the largest magnitude to levels within this distance of the lowest level. */
const REACH: i32 = 7;

/** Finds the scales of the tile's four blocks of 32, and stores them at `scales`. Without importance, the trials are those of llama.cpp. */
export function searchLevels(hasImportance: bool, scales: usize): void {
  const bytes: usize = 512;
  const inverse = inverseOf(peaks(bytes));
  multiplyWeights(bytes);
  startSearch();
  if (hasImportance) {
    for (let i = -WIDE_REACH; i <= WIDE_REACH; i += WIDE_STEP) {
      tryLevels(bytes, f32x4.mul(inverse, f32x4.splat(LOWEST + <f32>i)));
      tryLevels(bytes, f32x4.mul(inverse, f32x4.splat(HIGHEST + <f32>i)));
    }
  } else {
    tryLevels(bytes, f32x4.mul(inverse, f32x4.splat(-LOWEST)));
    for (let i = -REACH; i <= REACH; i++) tryLevels(bytes, f32x4.mul(inverse, f32x4.splat(LOWEST + <f32>i)));
  }
  v128.store(scales, bestScales());
}

/** Tries one factor from values to levels. */
function tryLevels(bytes: usize, factor: v128): void {
  levelSums(bytes, factor);
  keepBetterScale(v128.load(PRODUCT_SUMS), v128.load(SQUARE_SUMS));
}

/** Stores the weighted sums of values times levels and of squared levels. `factor` maps values to levels. */
// @ts-expect-error: decorator
@inline
export function levelSums(bytes: usize, factor: v128): void {
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
  v128.store(PRODUCT_SUMS, products);
  v128.store(SQUARE_SUMS, squares);
}

// @ts-expect-error: decorator
@inline
function weighted(level: v128, at: usize): v128 {
  return f32x4.mul(f32x4.mul(level, level), v128.load(WEIGHTS + at));
}

/**
 * Returns the codes of the levels nearest to 16 numbers that are already rounded to integers. The range of a byte is
 * divided into 16 bins of 16 integers. A bin has at most one midpoint between levels, so two tables are enough: the code
 * of the integers below the midpoint, and the largest of these integers. Larger integers in the bin have the next code.
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
