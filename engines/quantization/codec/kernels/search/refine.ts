// Refinement of the scales and mins of a super-block in the form in which they are stored: small integers times the super-scale. For each
// block, the neighbours of its integer are tried with the levels that result from them. Then the super-scale is fitted to the levels of all
// blocks. Each step lowers the weighted squared error. Works on one tile after another.
import { sumOfLanes } from "../../../../wasm/kernels/arithmetic";
import { levelSums, PRODUCT_SUMS, SQUARE_SUMS } from "./codebook";
import { inverseOf } from "./symmetric";
import { PRODUCTS, VALUES, WEIGHTS } from "./tile";

/** Best candidates for a tile's blocks, in one vector each: the reduction of the error, the scale's integer, the min's integer. */
const BEST: usize = memory.data(48, 16);
/** Weighted sums of the best candidates: levels, their squares, values times levels. */
const BEST_SUMS: usize = memory.data(48, 16);
/** Weighted sums of a trial's levels, with one block in each lane. */
const LEVEL_SUMS: usize = memory.data(16, 16);
/** Minimum determinant of the equations for the two super-scales, relative to its first term. Below it, the equations are not solved. */
const LEAST_DETERMINANT: f32 = 1e-4;

/**
 * Weighted sums over a super-block: coefficients of the least-squares equations for its two super-scales. The integer scales and mins of
 * its blocks are fixed in these equations.
 */
let squares: f32 = 0;
let products: f32 = 0;
let cross: f32 = 0;
let minSquares: f32 = 0;
let minProducts: f32 = 0;

/** Resets the sums over a super-block. Call before each pass over its tiles. */
export function startRefinement(): void {
  squares = products = cross = minSquares = minProducts = 0;
}

/**
 * Changes the quantised scales of four blocks (i8 integers at `scales`) by at most 1 each, so that the weighted squared error of
 * superScale * integer * level decreases. Levels are -bound..bound - 1, or those of IQ4 if `bound` is 0. Integers stay in
 * lowest..highest. PRODUCTS must hold the weighted values of the tile.
 */
export function refineSymmetric(
  length: i32, bound: f32, superScale: f32, scales: usize, lowest: f32, highest: f32,
): void {
  const bytes = <usize>length << 4, unit = f32x4.splat(superScale), before = fourBytes(scales);
  v128.store(BEST, f32x4.splat(-Infinity));
  for (let i = -1; i <= 1; i++) {
    const trial = limited(f32x4.add(before, f32x4.splat(<f32>i)), lowest, highest);
    const scale = f32x4.mul(trial, unit);
    const inverse = inverseOf(scale);
    if (bound == 0) levelSums(bytes, inverse);
    else sumUp(bytes, f32x4.splat(-bound), f32x4.splat(bound - 1), inverse);
    const product = v128.load(PRODUCT_SUMS), square = v128.load(SQUARE_SUMS);
    const gain = f32x4.mul(scale, f32x4.sub(f32x4.add(product, product), f32x4.mul(scale, square)));
    const isBetter = f32x4.gt(gain, v128.load(BEST));
    keep(BEST, gain, isBetter);
    keep(BEST + 16, trial, isBetter);
    keep(BEST_SUMS + 16, square, isBetter);
    keep(BEST_SUMS + 32, product, isBetter);
  }
  const chosen = v128.load(BEST + 16);
  storeBytes(chosen, scales);
  products += sumOfLanes(f32x4.mul(chosen, v128.load(BEST_SUMS + 32)));
  squares += sumOfLanes(f32x4.mul(f32x4.mul(chosen, chosen), v128.load(BEST_SUMS + 16)));
}

/**
 * Returns the super-scale with the least error for the levels of the last pass, if `superMin` is the super-scale of the mins. Returns
 * `before` if all levels are zero.
 */
export function refinedScale(before: f32, superMin: f32): f32 {
  return squares > 0 ? (products + superMin * cross) / squares : before;
}

/** Returns the super-scale of the mins with the least error, 0 if it would be negative; `before` if the equations do not determine it. */
export function refinedMin(before: f32): f32 {
  const determinant = squares * minSquares - cross * cross;
  if (!(determinant > LEAST_DETERMINANT * squares * minSquares)) return before;
  return max((cross * products - squares * minProducts) / determinant, 0);
}

/**
 * Replaces the integers of the scales and mins of four blocks (i8, at `scales` and `mins`) by better ones, for value = superScale *
 * integer * level - superMin * integer, with levels 0..top. Integers stay in 0..most. PRODUCTS must hold the tile's values times weights.
 */
export function refineAffine(
  length: i32, top: f32, superScale: f32, superMin: f32, scales: usize, mins: usize, most: f32,
): void {
  const bytes = <usize>length << 4, before = fourBytes(scales), unit = f32x4.splat(superMin);
  let weights = f32x4.splat(0), values = weights;
  for (let at: usize = 0; at < bytes; at += 16) {
    weights = f32x4.add(weights, v128.load(WEIGHTS + at));
    values = f32x4.add(values, v128.load(PRODUCTS + at));
  }
  const perMin = inverseOf(f32x4.mul(weights, unit)), min = fourBytes(mins);
  v128.store(BEST, f32x4.splat(-Infinity));
  for (let i = -1; i <= 1; i++) {
    const trial = limited(f32x4.add(before, f32x4.splat(<f32>i)), 0, most);
    const scale = f32x4.mul(trial, f32x4.splat(superScale));
    sumUpShifted(bytes, f32x4.splat(top), f32x4.mul(min, unit), inverseOf(scale));
    const product = v128.load(PRODUCT_SUMS), square = v128.load(SQUARE_SUMS), level = v128.load(LEVEL_SUMS);
    const scaled = f32x4.mul(scale, level);
    // The integer that gives the min with the least error for the levels of this trial.
    const trialMin = limited(f32x4.nearest(f32x4.mul(f32x4.sub(scaled, values), perMin)), 0, most);
    const shift = f32x4.mul(trialMin, unit);
    const twice = f32x4.mul(f32x4.splat(2), f32x4.sub(f32x4.mul(scale, product), f32x4.mul(shift, f32x4.sub(values, scaled))));
    const gain = f32x4.sub(
      twice,
      f32x4.add(f32x4.mul(f32x4.mul(scale, scale), square), f32x4.mul(f32x4.mul(shift, shift), weights)),
    );
    const isBetter = f32x4.gt(gain, v128.load(BEST));
    keep(BEST, gain, isBetter);
    keep(BEST + 16, trial, isBetter);
    keep(BEST + 32, trialMin, isBetter);
    keep(BEST_SUMS, level, isBetter);
    keep(BEST_SUMS + 16, square, isBetter);
    keep(BEST_SUMS + 32, product, isBetter);
  }
  const chosen = v128.load(BEST + 16), chosenMin = v128.load(BEST + 32);
  storeBytes(chosen, scales);
  storeBytes(chosenMin, mins);
  products += sumOfLanes(f32x4.mul(chosen, v128.load(BEST_SUMS + 32)));
  squares += sumOfLanes(f32x4.mul(f32x4.mul(chosen, chosen), v128.load(BEST_SUMS + 16)));
  cross += sumOfLanes(f32x4.mul(f32x4.mul(chosen, chosenMin), v128.load(BEST_SUMS)));
  minSquares += sumOfLanes(f32x4.mul(f32x4.mul(chosenMin, chosenMin), weights));
  minProducts += sumOfLanes(f32x4.mul(chosenMin, values));
}

/**
 * Computes the weighted sums of levels, of squared levels and of values times levels for each block of a tile. Levels are
 * (value + shift) * factor, rounded and limited to 0..top.
 */
function sumUpShifted(bytes: usize, top: v128, shift: v128, factor: v128): void {
  let product = f32x4.splat(0), square = product, levels = product;
  for (let at: usize = 0; at < bytes; at += 16) {
    const scaled = f32x4.nearest(f32x4.mul(f32x4.add(v128.load(VALUES + at), shift), factor));
    const level = f32x4.pmax(f32x4.pmin(scaled, top), f32x4.splat(0));
    const weighted = f32x4.mul(v128.load(WEIGHTS + at), level);
    product = f32x4.add(product, f32x4.mul(v128.load(PRODUCTS + at), level));
    square = f32x4.add(square, f32x4.mul(weighted, level));
    levels = f32x4.add(levels, weighted);
  }
  v128.store(PRODUCT_SUMS, product);
  v128.store(SQUARE_SUMS, square);
  v128.store(LEVEL_SUMS, levels);
}

/**
 * Computes the weighted sums of squared levels and of values times levels for each block of a tile. Levels are value * factor, rounded and
 * limited to lowest..highest.
 */
function sumUp(bytes: usize, lowest: v128, highest: v128, factor: v128): void {
  let product = f32x4.splat(0), square = product;
  for (let at: usize = 0; at < bytes; at += 16) {
    const scaled = f32x4.nearest(f32x4.mul(v128.load(VALUES + at), factor));
    const level = f32x4.pmax(f32x4.pmin(scaled, highest), lowest);
    product = f32x4.add(product, f32x4.mul(v128.load(PRODUCTS + at), level));
    square = f32x4.add(square, f32x4.mul(f32x4.mul(v128.load(WEIGHTS + at), level), level));
  }
  v128.store(PRODUCT_SUMS, product);
  v128.store(SQUARE_SUMS, square);
}

// @ts-expect-error: decorator
@inline
function keep(at: usize, value: v128, isBetter: v128): void {
  v128.store(at, v128.bitselect(value, v128.load(at), isBetter));
}

// @ts-expect-error: decorator
@inline
function limited(x: v128, lowest: f32, highest: f32): v128 {
  return f32x4.pmax(f32x4.pmin(x, f32x4.splat(highest)), f32x4.splat(lowest));
}

/** Converts four signed bytes to floats. */
// @ts-expect-error: decorator
@inline
function fourBytes(at: usize): v128 {
  return f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(at))));
}

/** Stores four floats that are small integers as signed bytes. */
// @ts-expect-error: decorator
@inline
function storeBytes(x: v128, at: usize): void {
  const words = i16x8.narrow_i32x4_s(i32x4.trunc_sat_f32x4_s(x), i32x4.splat(0));
  store<i32>(at, i32x4.extract_lane(i8x16.narrow_i16x8_s(words, words), 0));
}
