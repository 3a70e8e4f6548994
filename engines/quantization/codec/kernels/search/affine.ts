// Search for a scale and a min of each block of a tile: value = scale * level - min, with levels 0..top. Levels come from
// a grid of trial scales around (largest - smallest) / top. For each trial the scale and min of the least weighted squared
// error follow from five sums (linear regression), and so does the error.
import { PRODUCTS, VALUES, WEIGHTS } from "./tile";

/** Best result so far, in one vector each: the reduction of the error, the scale, and the distance from the smallest value to level 0. */
const BEST: usize = memory.data(48, 16);
/** Variance of levels, relative to their mean square, below which the regression is not solved. */
const LEAST_VARIANCE: f32 = 1e-6;
/**
 * Smallest relative gain of a better result. It is above the rounding errors of the sums, so that values that are already
 * quantised keep their scale.
 */
const LEAST_GAIN: f32 = 2e-6;

/**
 * Finds scales and mins of the tile, and stores four of each. Mins are not negative. The first trial maps the range of the values to `top`
 * levels, the next ones to top + first, top + first + step and so on. `trials` is even. Overwrites VALUES.
 */
export function searchAffine(
  length: i32, top: f32, first: f32, step: f32, trials: i32, scales: usize, mins: usize,
): void {
  const bytes = <usize>length << 4;
  let low = f32x4.splat(0), high = v128.load(VALUES);
  for (let at: usize = 0; at < bytes; at += 16) {
    const x = v128.load(VALUES + at);
    low = f32x4.pmin(low, x);
    high = f32x4.pmax(high, x);
  }
  let weights = f32x4.splat(0), values = weights;
  for (let at: usize = 0; at < bytes; at += 16) {
    const y = f32x4.sub(v128.load(VALUES + at), low), weight = v128.load(WEIGHTS + at);
    const product = f32x4.mul(weight, y);
    v128.store(VALUES + at, y);
    v128.store(PRODUCTS + at, product);
    weights = f32x4.add(weights, weight);
    values = f32x4.add(values, product);
  }
  const mean = f32x4.div(values, weights);
  const range = f32x4.sub(high, low);
  v128.store(BEST, f32x4.splat(-Infinity));
  v128.store(BEST, f32x4.mul(range, f32x4.splat(1 / top)), 16);
  v128.store(BEST, f32x4.splat(0), 32);
  for (let i = 0; i < trials; i += 2) {
    // Levels are counted from the best min so far, because a better min also improves the later trials.
    const shift = v128.load(BEST, 32);
    const rest = f32x4.sub(range, shift);
    const inverse = v128.and(f32x4.div(f32x4.splat(1), rest), f32x4.gt(rest, f32x4.splat(0)));
    const a = f32x4.mul(inverse, f32x4.splat(i == 0 ? top : top + first + step * <f32>(i - 1)));
    const b = f32x4.mul(inverse, f32x4.splat(top + first + step * <f32>i));
    tryTwo(bytes, f32x4.splat(top), shift, a, b, weights, mean, low);
  }
  v128.store(scales, v128.load(BEST, 16));
  v128.store(mins, f32x4.neg(f32x4.add(low, v128.load(BEST, 32))));
}

/**
 * Replaces the mins that searchAffine() found for the tile (four floats at `mins`) by the best mins for `scales`, which are the found
 * scales rounded as they are stored. Mins are not negative.
 */
// @ts-expect-error: decorator
@inline
export function fitMins(length: i32, top: f32, scales: v128, mins: usize): void {
  const inverse = v128.and(f32x4.div(f32x4.splat(1), scales), f32x4.ne(scales, f32x4.splat(0)));
  const shift = v128.load(BEST, 32), highest = f32x4.splat(top), zero = f32x4.splat(0);
  let rest = zero, weights = zero;
  for (let at: usize = 0; at < <usize>length << 4; at += 16) {
    const y = f32x4.sub(v128.load(VALUES + at), shift), weight = v128.load(WEIGHTS + at);
    const level = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(y, inverse)), highest), zero);
    rest = f32x4.add(rest, f32x4.mul(weight, f32x4.sub(y, f32x4.mul(scales, level))));
    weights = f32x4.add(weights, weight);
  }
  v128.store(mins, f32x4.pmax(f32x4.sub(v128.load(mins), f32x4.div(rest, weights)), zero));
}

/** Tries two factors from values to levels, and keeps the scale and min of each block that are the best so far. */
// @ts-expect-error: decorator
@inline
function tryTwo(bytes: usize, top: v128, shift: v128, a: v128, b: v128, weights: v128, mean: v128, low: v128): void {
  let levelsA = f32x4.splat(0), squaresA = levelsA, productsA = levelsA;
  let levelsB = levelsA, squaresB = levelsA, productsB = levelsA;
  const zero = f32x4.splat(0);
  for (let at: usize = 0; at < bytes; at += 16) {
    const y = v128.load(VALUES + at), weight = v128.load(WEIGHTS + at), product = v128.load(PRODUCTS + at);
    const levelA = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(f32x4.sub(y, shift), a)), top), zero);
    const levelB = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(f32x4.sub(y, shift), b)), top), zero);
    const weightedA = f32x4.mul(weight, levelA), weightedB = f32x4.mul(weight, levelB);
    levelsA = f32x4.add(levelsA, weightedA);
    levelsB = f32x4.add(levelsB, weightedB);
    squaresA = f32x4.add(squaresA, f32x4.mul(weightedA, levelA));
    squaresB = f32x4.add(squaresB, f32x4.mul(weightedB, levelB));
    productsA = f32x4.add(productsA, f32x4.mul(product, levelA));
    productsB = f32x4.add(productsB, f32x4.mul(product, levelB));
  }
  keepBetter(levelsA, squaresA, productsA, weights, mean, low);
  keepBetter(levelsB, squaresB, productsB, weights, mean, low);
}

/**
 * Solves the regression of values on levels, and keeps the result where it is the best so far. The arguments are weighted sums (levels,
 * squared levels, values times levels, weights) and the mean value. Values are distances from `low`.
 */
function keepBetter(levels: v128, squares: v128, products: v128, weights: v128, mean: v128, low: v128): void {
  const meanLevel = f32x4.div(levels, weights);
  const variance = f32x4.sub(squares, f32x4.mul(levels, meanLevel));
  const covariance = f32x4.sub(products, f32x4.mul(levels, mean));
  let scale = f32x4.div(covariance, variance);
  let shift = f32x4.sub(mean, f32x4.mul(scale, meanLevel));
  let gain = f32x4.mul(scale, covariance);
  // A shift above this limit would make the min negative. In that case the min is zero, and only the scale is fitted.
  const most = f32x4.neg(low), isAbove = f32x4.gt(shift, most);
  const lone = f32x4.div(f32x4.sub(products, f32x4.mul(most, levels)), squares);
  const distance = f32x4.sub(mean, most);
  const loneGain = f32x4.sub(
    f32x4.mul(f32x4.mul(lone, lone), squares),
    f32x4.mul(f32x4.mul(distance, distance), weights),
  );
  scale = v128.bitselect(lone, scale, isAbove);
  gain = v128.bitselect(loneGain, gain, isAbove);
  shift = f32x4.pmin(shift, most);
  const best = v128.load(BEST);
  const isSolved = f32x4.gt(variance, f32x4.mul(squares, f32x4.splat(LEAST_VARIANCE)));
  const isBetter = v128.and(isSolved, f32x4.gt(f32x4.sub(gain, best), f32x4.mul(gain, f32x4.splat(LEAST_GAIN))));
  v128.store(BEST, v128.bitselect(gain, best, isBetter));
  v128.store(BEST, v128.bitselect(scale, v128.load(BEST, 16), isBetter), 16);
  v128.store(BEST, v128.bitselect(shift, v128.load(BEST, 32), isBetter), 32);
}
