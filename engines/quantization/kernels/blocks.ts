// Encoders of the types with blocks of 32 columns. Four blocks, a tile, are encoded at a time. Without importance, scale and
// min follow from the extremes of a block. With importance, and always for IQ4_NL, they are searched.
import { IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../../wasm/kernels/types";
import { nearestCodes } from "./codes";
import { largest, largestLanes, smallest } from "./extremes";
import { fourFloats, fourHalves } from "./floats";
import { encodeFp4 } from "./fp4";
import { levelsToBytes } from "./levels";
import { nibbles } from "./pack";
import { searchAffine } from "./search/affine";
import { searchLevels } from "./search/codebook";
import { searchSymmetric } from "./search/symmetric";
import {
  largestOf, meanSquare, meanSquares, NEGLIGIBLE, powerBelow, transpose, VALUES, weigh, weighImportance, WEIGHTS,
} from "./search/tile";

export const BLOCK: i32 = 32;
const BLOCK_FLOATS: usize = 128;
/** Number of blocks in a tile. */
const LANES: i32 = 4;
/** The last blocks of a row and their importance, with zeros after them up to a whole tile. */
const LAST_VALUES: usize = memory.data(512, 16);
const LAST_IMPORTANCE: usize = memory.data(512, 16);
/** Factors from values to levels of the tile's blocks, and their mins as stored. */
const FACTORS: usize = memory.data(16, 16);
const SHIFTS: usize = memory.data(16, 16);
/** Scales and mins of the tile's blocks as F16, each in 32 bits. */
const STORED_SCALES: usize = memory.data(16, 16);
const STORED_MINS: usize = memory.data(16, 16);
/** Scales and mins that a search found. */
const SCALES: usize = memory.data(16, 16);
const MINS: usize = memory.data(16, 16);
/** Largest mean square of a row over that of a tile. */
const MOST_SPREAD: f64 = 1e24;
/** Trials of the affine search with importance. */
const FIRST: f32 = -1;
const STEP: f32 = 0.1;
const TRIALS: i32 = 22;

// @ts-expect-error: decorator
@inline
export function isBlockType(type: i32): bool {
  return type == Q4_0 || type == Q4_1 || type == Q5_0 || type == Q5_1 || type == Q8_0 || type == IQ4_NL || type == MXFP4;
}

// @ts-expect-error: decorator
@inline
export function blockBytes(type: i32): usize {
  if (type == Q8_0) return 34;
  if (type == MXFP4) return 17;
  return 18 + (hasMins(type) ? 2 : 0) + (hasFifthBits(type) ? 4 : 0);
}

// @ts-expect-error: decorator
@inline
export function hasMins(type: i32): bool {
  return type == Q4_1 || type == Q5_1;
}

// @ts-expect-error: decorator
@inline
export function hasFifthBits(type: i32): bool {
  return type == Q5_0 || type == Q5_1;
}

/** Returns the number of levels below zero: level 0 is stored as this number. */
// @ts-expect-error: decorator
@inline
export function biasOf(type: i32): i32 {
  return type == Q4_0 ? 8 : type == Q5_0 ? 16 : 0;
}

// @ts-expect-error: decorator
@inline
function highestOf(type: i32): i32 {
  if (type == Q8_0) return 127;
  if (type == Q4_0 || type == Q5_0) return biasOf(type) - 1;
  return hasFifthBits(type) ? 31 : 15;
}

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

/** Encodes a tile whose scales and mins follow from the extremes of the blocks. */
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

/** Encodes a tile with scales from a search. `spread`: mean square of the row. */
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
  if (type == IQ4_NL) searchLevels(SCALES);
  else if (hasMins(type)) searchAffine(BLOCK, <f32>highestOf(type), FIRST, STEP, TRIALS, SCALES, MINS);
  else searchSymmetric(BLOCK, <f32>biasOf(type), 0.18, SCALES);
  const mins = hasMins(type) ? f32x4.neg(f32x4.mul(v128.load(MINS), units)) : f32x4.splat(0);
  writeTile(type, x, count, f32x4.mul(v128.load(SCALES), units), mins, out);
}

/**
 * Writes up to four blocks with given scales and mins. Levels are those nearest to the values with the scale and min as
 * stored.
 */
// @ts-expect-error: decorator
@inline
function writeTile(type: i32, x: usize, count: i32, scales: v128, mins: v128, out: usize): void {
  const storedScales = fourHalves(scales);
  const rounded = asFloats(storedScales);
  v128.store(STORED_SCALES, storedScales);
  v128.store(FACTORS, v128.and(f32x4.div(f32x4.splat(1), rounded), f32x4.ne(rounded, f32x4.splat(0))));
  if (hasMins(type)) {
    const storedMins = fourHalves(mins);
    v128.store(STORED_MINS, storedMins);
    v128.store(SHIFTS, asFloats(storedMins));
  }
  for (let i: usize = 0; i < <usize>count << 2; i += 4) {
    store<u16>(out, load<u16>(STORED_SCALES + i));
    if (hasMins(type)) store<u16>(out, load<u16>(STORED_MINS + i), 2);
    const shifts = hasMins(type) ? v128.load32_splat(SHIFTS + i) : f32x4.splat(0);
    if (type == IQ4_NL) {
      const factor = load<f32>(FACTORS + i);
      v128.store(out, nibbles(nearestCodes(x, factor), nearestCodes(x + 64, factor)), 2);
    } else {
      writeLevels(type, x, v128.load32_splat(FACTORS + i), shifts, out);
    }
    x += BLOCK_FLOATS;
    out += blockBytes(type);
  }
}

/** Converts F16 to floats. */
// @ts-expect-error: decorator
@inline
function asFloats(halves: v128): v128 {
  return fourFloats(i32x4.shr_s(i32x4.shl(halves, 16), 16));
}

/** Writes the levels of a block. */
// @ts-expect-error: decorator
@inline
function writeLevels(type: i32, x: usize, factors: v128, shifts: v128, out: usize): void {
  const low = sixteenLevels(type, x, factors, shifts), high = sixteenLevels(type, x + 64, factors, shifts);
  if (type == Q8_0) {
    v128.store(out, low, 2);
    v128.store(out, high, 18);
    return;
  }
  let quants = out + (hasMins(type) ? 4 : 2);
  if (hasFifthBits(type)) {
    store<u16>(quants, <u16>i8x16.bitmask(i8x16.shl(low, 3)));
    store<u16>(quants, <u16>i8x16.bitmask(i8x16.shl(high, 3)), 2);
    quants += 4;
  }
  v128.store(quants, nibbles(low, high));
}

/** Returns the levels of 16 values. The factor of a block makes levels that are far below 2^22. */
// @ts-expect-error: decorator
@inline
function sixteenLevels(type: i32, at: usize, factors: v128, shifts: v128): v128 {
  const levels = levelsToBytes(
    scaled(type, at, factors, shifts),
    scaled(type, at + 16, factors, shifts),
    scaled(type, at + 32, factors, shifts),
    scaled(type, at + 48, factors, shifts),
    biasOf(type),
  );
  // Narrowing to bytes has limited the levels of Q8_0.
  if (type == Q8_0) return levels;
  return i8x16.max_s(i8x16.min_s(levels, i8x16.splat(<i8>(highestOf(type) + biasOf(type)))), i8x16.splat(0));
}

// @ts-expect-error: decorator
@inline
function scaled(type: i32, at: usize, factors: v128, shifts: v128): v128 {
  const x = v128.load(at);
  return f32x4.mul(hasMins(type) ? f32x4.sub(x, shifts) : x, factors);
}
