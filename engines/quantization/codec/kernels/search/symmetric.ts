// Search for a scale of each block of a tile: value = scale * level, with levels -bound..bound - 1. Levels come from a grid
// of trial scales that map the value of the largest magnitude to about -bound. For each trial the scale of the least
// weighted squared error follows from two sums, and so does the error.
import { PRODUCTS, VALUES, WEIGHTS } from "./tile";

/** Best result so far: the reduction of the error, and the scale. */
const BEST: usize = memory.data(32, 16);
const TRIALS: i32 = 12;

/** Returns the value of the largest magnitude of each block of a tile. */
// @ts-expect-error: decorator
@inline
export function peaks(bytes: usize): v128 {
  let low = v128.load(VALUES), high = low;
  for (let at: usize = 16; at < bytes; at += 16) {
    const x = v128.load(VALUES + at);
    low = f32x4.pmin(low, x);
    high = f32x4.pmax(high, x);
  }
  return v128.bitselect(low, high, f32x4.gt(f32x4.neg(low), high));
}

/** Stores the values times their weights. */
export function multiplyWeights(bytes: usize): void {
  for (let at: usize = 0; at < bytes; at += 16) {
    v128.store(PRODUCTS + at, f32x4.mul(v128.load(VALUES + at), v128.load(WEIGHTS + at)));
  }
}

/** Returns 1 / x in each lane, or 0 if x is 0. */
// @ts-expect-error: decorator
@inline
export function inverseOf(x: v128): v128 {
  return v128.and(f32x4.div(f32x4.splat(1), x), f32x4.ne(x, f32x4.splat(0)));
}

/** Starts a search by resetting the best result. */
// @ts-expect-error: decorator
@inline
export function startSearch(): void {
  v128.store(BEST, f32x4.splat(-Infinity));
  v128.store(BEST, f32x4.splat(0), 16);
}

/**
 * Computes the scale with the least error from weighted sums of values times levels and of squared levels. Keeps the scale where it is the
 * best so far.
 */
// @ts-expect-error: decorator
@inline
export function keepBetterScale(products: v128, squares: v128): void {
  const scale = f32x4.div(products, squares);
  const gain = f32x4.mul(scale, products);
  const best = v128.load(BEST);
  const isBetter = f32x4.gt(gain, best);
  v128.store(BEST, v128.bitselect(gain, best, isBetter));
  v128.store(BEST, v128.bitselect(scale, v128.load(BEST, 16), isBetter), 16);
}

/** Returns the best scale that the search has found for each of the four blocks. */
// @ts-expect-error: decorator
@inline
export function bestScales(): v128 {
  return v128.load(BEST, 16);
}

/**
 * Finds the scales of the tile's four blocks, and stores them. Levels are -bound..bound - 1. The trials map the value of the largest
 * magnitude to levels of the magnitudes bound + first, bound + first + step, and so on.
 */
export function searchSymmetric(length: i32, bound: f32, first: f32, step: f32, scales: usize): void {
  const bytes = <usize>length << 4;
  const inverse = inverseOf(peaks(bytes));
  multiplyWeights(bytes);
  startSearch();
  for (let i = 0; i < TRIALS; i += 2) {
    const a = f32x4.mul(inverse, f32x4.splat(-bound - first - step * <f32>i));
    const b = f32x4.mul(inverse, f32x4.splat(-bound - first - step * <f32>(i + 1)));
    tryTwo(bytes, f32x4.splat(-bound), f32x4.splat(bound - 1), a, b);
  }
  v128.store(scales, bestScales());
}

/** Tries two factors from values to levels, and keeps the scale of each block that is the best so far. */
// @ts-expect-error: decorator
@inline
function tryTwo(bytes: usize, lowest: v128, highest: v128, a: v128, b: v128): void {
  let productsA = f32x4.splat(0), squaresA = productsA, productsB = productsA, squaresB = productsA;
  for (let at: usize = 0; at < bytes; at += 16) {
    const x = v128.load(VALUES + at), weight = v128.load(WEIGHTS + at), product = v128.load(PRODUCTS + at);
    const levelA = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(x, a)), highest), lowest);
    const levelB = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(x, b)), highest), lowest);
    productsA = f32x4.add(productsA, f32x4.mul(product, levelA));
    productsB = f32x4.add(productsB, f32x4.mul(product, levelB));
    squaresA = f32x4.add(squaresA, f32x4.mul(f32x4.mul(weight, levelA), levelA));
    squaresB = f32x4.add(squaresB, f32x4.mul(f32x4.mul(weight, levelB), levelB));
  }
  keepBetterScale(productsA, squaresA);
  keepBetterScale(productsB, squaresB);
}
