// Encoders of the types with super-blocks of 256 columns. A super-block has 8 or 16 blocks, each with a scale (and a min)
// that is a small integer times the super-scale. Scales are searched first, then expressed by the super-scale, then every
// value is rounded to the nearest level with its scale as stored.
import { IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K } from "../../../wasm/kernels/types";
import { fileSuperBytes, fileSuperScaleAt } from "../../../wasm/kernels/k-quants/file";
import { nearestCodes } from "./codes";
import { float, half } from "./floats";
import { sixteenLevels } from "./levels";
import { packLevels, packScalesAndMins, packScalesIq4, packScalesQ3 } from "./pack";
import { searchAffine } from "./search/affine";
import { searchLevels } from "./search/codebook";
import { fitScales, MINS, SCALES, SUMS } from "./search/super-scale";
import { refineAffine, refinedMin, refinedScale, refineSymmetric, startRefinement } from "./search/refine";
import { multiplyWeights, searchSymmetric } from "./search/symmetric";
import {
  largestOf, meanSquare, NEGLIGIBLE, powerBelow, transpose, VALUES, weigh, weighImportance, WEIGHTS,
} from "./search/tile";

export const SUPER: i32 = 256;
const SUPER_FLOATS: usize = 1024;
/** Levels of a super-block, one byte each. */
const LEVELS: usize = memory.data(256, 16);
/** Number of rounds in which the integers of the scales and the super-scale are fitted to each other. */
const REFINEMENTS: i32 = 2;

/** Super-scales of the current super-block for its scales and mins, computed from values divided by a power of two (`unit`). */
let superScale: f32 = 0;
let superMin: f32 = 0;

// @ts-expect-error: decorator
@inline
export function hasMins(type: i32): bool {
  return type == Q2_K || type == Q4_K || type == Q5_K;
}

/** Returns the number of columns that share a scale in a number type: 16 or 32. */
// @ts-expect-error: decorator
@inline
export function lengthOf(type: i32): i32 {
  return type == Q2_K || type == Q3_K || type == Q6_K ? 16 : 32;
}

/** Returns the number that is added to each level of a type when it is stored, so that the lowest level becomes 0; 0 = none. */
// @ts-expect-error: decorator
@inline
export function biasOf(type: i32): i32 {
  return type == Q3_K ? 4 : type == Q6_K ? 32 : 0;
}

// @ts-expect-error: decorator
@inline
function highestOf(type: i32): i32 {
  if (type == Q2_K) return 3;
  if (type == Q4_K) return 15;
  return type == Q5_K ? 31 : biasOf(type) - 1;
}

/** Encodes one row of `columns` floats. `importance` is 0, or the address of the columns' weights. */
// @ts-expect-error: decorator
@inline
export function encodeSuperRow(type: i32, x: usize, columns: i32, importance: usize, out: usize): void {
  for (const end = x + (<usize>columns << 2); x < end; x += SUPER_FLOATS) {
    encodeSuper(type, x, importance, out);
    if (importance) importance += SUPER_FLOATS;
    out += fileSuperBytes(type);
  }
}

// @ts-expect-error: decorator
@inline
function encodeSuper(type: i32, x: usize, importance: usize, out: usize): void {
  const peak = largestOf(x, SUPER);
  if (peak < NEGLIGIBLE) {
    memory.fill(out, 0, fileSuperBytes(type));
    return;
  }
  const unit = powerBelow(peak);
  const spread = importance ? spreadOf(type, x, unit) : 0;
  searchScales(type, x, importance, unit, spread);
  superScale = fitSuperScale(type);
  superMin = hasMins(type) ? fitSuperMin(type) : 0;
  if (importance) {
    for (let round = 0; round < REFINEMENTS; round++) refineScales(type, x, importance, unit, spread);
  }
  const storedScale = half(superScale * unit);
  const rounded = float(storedScale);
  store<u16>(out + fileSuperScaleAt(type), storedScale);
  let roundedMin: f32 = 0;
  if (hasMins(type)) {
    const storedMin = half(superMin * unit);
    store<u16>(out + fileSuperScaleAt(type) + 2, storedMin);
    roundedMin = float(storedMin);
  }
  for (let i: usize = 0; i < 16; i++) {
    const block = lengthOf(type) == 16 ? i : i >> 1;
    const own = rounded * <f32>load<i8>(SCALES + block);
    const factor = own == 0 ? <f32>0 : 1 / own;
    const shift = hasMins(type) ? roundedMin * <f32>load<i8>(MINS + block) : 0;
    const from = x + (i << 6), bias = biasOf(type);
    v128.store(
      LEVELS + (i << 4),
      type == IQ4_XS ? nearestCodes(from, factor) : sixteenLevels(from, shift, factor, -bias, highestOf(type), bias),
    );
  }
  packScales(type, out);
  packLevels(type, LEVELS, out);
}

/** Returns the mean square of a super-block's values divided by `unit`, times a factor of the type; input of weighImportance(). */
// @ts-expect-error: decorator
@inline
function spreadOf(type: i32, x: usize, unit: f32): f32 {
  return <f32>(meanSquare(x, SUPER) / (<f64>unit * <f64>unit)) * (type == Q2_K ? 1 : 2);
}

/** Loads the values and weights of four blocks into the tile, and returns the sums of their weights. */
// @ts-expect-error: decorator
@inline
function loadTile(type: i32, x: usize, importance: usize, unit: f32, spread: f32): v128 {
  const length = lengthOf(type);
  transpose(x, length, 1 / unit, VALUES);
  if (!importance) return weigh(type, length);
  transpose(importance, length, 1, WEIGHTS);
  return weighImportance(type, length, f32x4.splat(spread));
}

/** Finds the scales (and mins) of all blocks of a super-block, for values divided by `unit`, and stores the sums of the weights. */
// @ts-expect-error: decorator
@inline
function searchScales(type: i32, x: usize, importance: usize, unit: f32, spread: f32): void {
  const length = lengthOf(type), tileBytes = <usize>length << 4;
  for (let at: usize = 0; at < <usize>(SUPER / length) << 2; at += 16) {
    v128.store(SUMS + at, loadTile(type, x, importance, unit, spread));
    if (type == IQ4_XS) searchLevels(importance != 0, SCALES + at);
    else if (hasMins(type)) searchMins(type, importance != 0, at);
    else searchCentered(type, importance != 0, SCALES + at);
    if (importance) importance += tileBytes;
    x += tileBytes;
  }
}

/** Improves the small integers that stand for the scales and mins of the blocks, and then the super-scales. */
// @ts-expect-error: decorator
@inline
function refineScales(type: i32, x: usize, importance: usize, unit: f32, spread: f32): void {
  const length = lengthOf(type), tileBytes = <usize>length << 4;
  startRefinement();
  for (let at: usize = 0; at < <usize>(SUPER / length); at += 4) {
    loadTile(type, x, importance, unit, spread);
    multiplyWeights(tileBytes);
    const scales = SCALES + at;
    if (hasMins(type)) {
      refineAffine(length, <f32>highestOf(type), superScale, superMin, scales, MINS + at, mostOf(type));
    } else if (type == Q6_K) refineSymmetric(length, 32, superScale, scales, -128, 127);
    else refineSymmetric(length, <f32>biasOf(type), superScale, scales, -32, 31);
    importance += tileBytes;
    x += tileBytes;
  }
  if (hasMins(type)) superMin = refinedMin(superMin);
  superScale = refinedScale(superScale, superMin);
}

/** Finds scales and mins of four blocks (a tile). With importance (`isFine`), the grid of trial scales is finer. */
// @ts-expect-error: decorator
@inline
function searchMins(type: i32, isFine: bool, at: usize): void {
  const top = <f32>highestOf(type);
  if (isFine) searchAffine(lengthOf(type), top, -1, 0.1, 22, SCALES + at, MINS + at);
  else if (type == Q2_K) searchAffine(16, top, -0.6, 0.15, 10, SCALES + at, MINS + at);
  else searchAffine(32, top, -1.6, 0.2, 18, SCALES + at, MINS + at);
}

/**
 * Finds scales of four blocks (a tile) of a type without mins. More clipping would lower the weighted errors of Q3_K, but raises perplexity
 * (docs/decisions.md).
 */
// @ts-expect-error: decorator
@inline
function searchCentered(type: i32, hasImportance: bool, scales: usize): void {
  if (type == Q6_K) searchSymmetric(16, 32, hasImportance ? -2.2 : -1.5, hasImportance ? 0.36 : 0.3, scales);
  else searchSymmetric(16, 4, -0.9, 0.18, scales);
}

/** Returns the largest integer that stands for a scale or min in a type with mins. */
// @ts-expect-error: decorator
@inline
function mostOf(type: i32): f32 {
  return type == Q2_K ? 15 : 63;
}

/** Replaces the scales of the blocks by small integers, and returns the super-scale by which the integers are multiplied. */
// @ts-expect-error: decorator
@inline
function fitSuperScale(type: i32): f32 {
  const count = SUPER / lengthOf(type);
  if (type == Q6_K) return fitScales(SCALES, count, -128, -128, 127);
  return hasMins(type) ? fitScales(SCALES, count, mostOf(type), 0, mostOf(type)) : fitScales(SCALES, count, -32, -32, 31);
}

/** Replaces the mins of the blocks by small integers, and returns the super-scale by which the integers are multiplied. */
// @ts-expect-error: decorator
@inline
function fitSuperMin(type: i32): f32 {
  return fitScales(MINS, SUPER / lengthOf(type), mostOf(type), 0, mostOf(type));
}

// @ts-expect-error: decorator
@inline
function packScales(type: i32, out: usize): void {
  if (type == Q2_K) v128.store(out, v128.or(v128.load(SCALES), i8x16.shl(v128.load(MINS), 4)));
  else if (type == Q3_K) packScalesQ3(SCALES, out + 96);
  else if (type == Q6_K) v128.store(out, v128.load(SCALES), 192);
  else if (type == IQ4_XS) packScalesIq4(SCALES, out + 2);
  else packScalesAndMins(SCALES, MINS, out + 4);
}
