// Encoders of the types with blocks of 32 columns. Four blocks, a tile, are encoded at a time. Without importance, scale and
// min follow from the extremes of a block. With importance, and always for IQ4_NL, they are searched.
import { IQ4_NL, MXFP4, Q8_0 } from "../../../../wasm/kernels/types";
import { fourHalves } from "../floats";
import { fitMins, searchAffine } from "../search/affine";
import { searchLevels } from "../search/codebook";
import { searchSymmetric } from "../search/symmetric";
import {
  largestOf, meanSquare, meanSquares, NEGLIGIBLE, powerBelow, transpose, VALUES, weigh, weighImportance, WEIGHTS,
} from "../search/tile";
import { largest, largestLanes, smallest } from "./extremes";
import { BLOCK, BLOCK_FLOATS, biasOf, blockBytes, hasMins, highestOf } from "./format";
import { encodeFp4 } from "./fp4";
import { asFloats, writeTile } from "./write";

/** Number of blocks that are encoded at a time: a tile. */
const LANES: i32 = 4;
/** Copies of a row's last blocks and their importance, padded with zeros to a whole tile. */
const LAST_VALUES: usize = memory.data(512, 16);
const LAST_IMPORTANCE: usize = memory.data(512, 16);
/** Scales and mins that a search found. */
const SCALES: usize = memory.data(16, 16);
const MINS: usize = memory.data(16, 16);
/** Upper limit of a row's mean square after its values were divided by the power of two of a tile (`unit`). */
const MOST_SPREAD: f64 = 1e24;
/**
 * Search for scales and mins with importance: the first of `TRIALS` trials maps the range of a block to the top level, the next ones to
 * top + FIRST, top + FIRST + STEP and so on.
 */
const FIRST: f32 = -1;
const STEP: f32 = 0.1;
const TRIALS: i32 = 22;
/**
 * Search for scales of types without mins: the trials map the value of the largest magnitude to levels of the magnitudes
 * bound + FIRST_CENTERED, bound + FIRST_CENTERED + STEP_CENTERED and so on, where -bound is the lowest level of the type.
 */
const FIRST_CENTERED: f32 = -0.9;
const STEP_CENTERED: f32 = 0.18;

/** Encodes one row of `columns` floats. `importance` is 0, or the address of the columns' weights. */
// @ts-expect-error: decorator
@inline
export function encodeBlockRow(type: i32, x: usize, columns: i32, importance: usize, out: usize): void {
  const isSearched = type == IQ4_NL || (importance != 0 && type != Q8_0 && type != MXFP4);
  const spread = isSearched && type != IQ4_NL ? meanSquare(x, columns) : 0;
  for (let blocks = columns / BLOCK; blocks > 0; blocks -= LANES) {
    const count = min(blocks, LANES);
    let from = x, weights = importance;
    if (count < LANES) {
      from = copyLast(x, count, LAST_VALUES);
      if (importance) weights = copyLast(importance, count, LAST_IMPORTANCE);
    }
    if (type == MXFP4) encodeFp4Tile(from, count, weights, out);
    else if (isSearched) encodeSearched(type, from, count, weights, spread, out);
    else encodeExtremes(type, from, count, out);
    x += BLOCK_FLOATS * LANES;
    if (importance) importance += BLOCK_FLOATS * LANES;
    out += blockBytes(type) * LANES;
  }
}

function copyLast(from: usize, count: i32, to: usize): usize {
  memory.copy(to, from, <usize>count * BLOCK_FLOATS);
  memory.fill(to + <usize>count * BLOCK_FLOATS, 0, <usize>(LANES - count) * BLOCK_FLOATS);
  return to;
}

function encodeFp4Tile(x: usize, count: i32, importance: usize, out: usize): void {
  for (const end = x + <usize>count * BLOCK_FLOATS; x < end; x += BLOCK_FLOATS) {
    encodeFp4(x, importance, out);
    if (importance) importance += BLOCK_FLOATS;
    out += blockBytes(MXFP4);
  }
}

/** Encodes up to four blocks (a tile), each with the scale and min that follow from its largest and smallest value. */
// @ts-expect-error: decorator
@inline
function encodeExtremes(type: i32, x: usize, count: i32, out: usize): void {
  const a = x, b = x + BLOCK_FLOATS, c = b + BLOCK_FLOATS, d = c + BLOCK_FLOATS;
  if (type == Q8_0) {
    const sizes = largestLanes(largest(a, true), largest(b, true), largest(c, true), largest(d, true));
    writeTile(type, x, count, f32x4.mul(sizes, f32x4.splat(1 / <f32>127)), f32x4.splat(0), out);
    return;
  }
  const high = largestLanes(largest(a, false), largest(b, false), largest(c, false), largest(d, false));
  const low = f32x4.neg(largestLanes(
    f32x4.neg(smallest(a)), f32x4.neg(smallest(b)), f32x4.neg(smallest(c)), f32x4.neg(smallest(d)),
  ));
  if (hasMins(type)) {
    const scales = f32x4.mul(f32x4.sub(high, low), f32x4.splat(1 / <f32>highestOf(type)));
    writeTile(type, x, count, scales, low, out);
  } else {
    const peaks = v128.bitselect(low, high, f32x4.ge(f32x4.neg(low), high));
    writeTile(type, x, count, f32x4.mul(peaks, f32x4.splat(-1 / <f32>biasOf(type))), f32x4.splat(0), out);
  }
}

/** Encodes up to four blocks (a tile) with scales and mins from a search. `spread`: mean square of the row's values. */
// @ts-expect-error: decorator
@inline
function encodeSearched(type: i32, x: usize, count: i32, importance: usize, spread: f64, out: usize): void {
  const peak = largestOf(x, BLOCK * LANES);
  if (peak < NEGLIGIBLE) {
    memory.fill(out, 0, <usize>count * blockBytes(type));
    return;
  }
  const unit = powerBelow(peak), units = f32x4.splat(unit);
  transpose(x, BLOCK, 1 / unit, VALUES);
  if (importance) {
    transpose(importance, BLOCK, 1, WEIGHTS);
    weighImportance(type, BLOCK, type == IQ4_NL
      ? f32x4.mul(meanSquares(BLOCK), f32x4.splat(2))
      : f32x4.splat(<f32>min(spread / (<f64>unit * <f64>unit), MOST_SPREAD)));
  } else {
    weigh(type, BLOCK);
  }
  if (type == IQ4_NL) searchLevels(importance != 0, SCALES);
  else if (hasMins(type)) searchAffine(BLOCK, <f32>highestOf(type), FIRST, STEP, TRIALS, SCALES, MINS);
  else searchSymmetric(BLOCK, <f32>biasOf(type), FIRST_CENTERED, STEP_CENTERED, SCALES);
  if (hasMins(type)) {
    const rounded = asFloats(fourHalves(f32x4.mul(v128.load(SCALES), units)));
    fitMins(BLOCK, <f32>highestOf(type), f32x4.div(rounded, units), MINS);
  }
  const mins = hasMins(type) ? f32x4.neg(f32x4.mul(v128.load(MINS), units)) : f32x4.splat(0);
  writeTile(type, x, count, f32x4.mul(v128.load(SCALES), units), mins, out);
}
