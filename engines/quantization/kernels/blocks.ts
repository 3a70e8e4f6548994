// Encoders of the types with blocks of 32 columns. Without importance, scale and min follow from the extremes of a block.
// With importance, and always for IQ4_NL, they are searched, four blocks at a time.
import { IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../../wasm/kernels/types";
import { searchAffine } from "./affine";
import { encodeFp4, nearestCodes, searchLevels } from "./codebook";
import { float, half } from "./floats";
import { MINS, SCALES, sixteenLevels } from "./levels";
import { nibbles } from "./pack";
import { searchSymmetric } from "./symmetric";
import {
  largestLane, largestOf, meanSquare, meanSquares, NEGLIGIBLE, powerBelow, transpose, VALUES, weigh, weighImportance, WEIGHTS,
} from "./tile";

export const BLOCK: i32 = 32;
const BLOCK_FLOATS: usize = 128;
/** Number of blocks in a tile. */
const LANES: i32 = 4;
/** The last blocks of a row and their importance, with zeros after them up to a whole tile. */
const LAST_VALUES: usize = memory.data(512, 16);
const LAST_IMPORTANCE: usize = memory.data(512, 16);
/** Largest mean square of a row over that of a tile. */
const MOST_SPREAD: f64 = 1e24;
/** Trials of the affine search with importance. */
const FIRST: f32 = -0.9;
const STEP: f32 = 0.05;
const TRIALS: i32 = 38;

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
  const blocks = columns / BLOCK;
  if (type == IQ4_NL || (importance != 0 && type != Q8_0 && type != MXFP4)) {
    const spread = importance != 0 && type != IQ4_NL ? meanSquare(x, columns) : 0;
    for (let block = 0; block < blocks; block += LANES) {
      const at = <usize>block * BLOCK_FLOATS;
      const count = min(blocks - block, LANES);
      encodeTile(type, x + at, count, importance ? importance + at : 0, spread, out + <usize>block * blockBytes(type));
    }
  } else {
    for (const end = x + <usize>blocks * BLOCK_FLOATS; x < end; x += BLOCK_FLOATS) {
      if (type == MXFP4) encodeFp4(x, importance, out);
      else encodeExtremes(type, x, out);
      if (importance) importance += BLOCK_FLOATS;
      out += blockBytes(type);
    }
  }
}

/** Encodes a block whose scale and min follow from its extremes. */
// @ts-expect-error: decorator
@inline
function encodeExtremes(type: i32, x: usize, out: usize): void {
  if (type == Q8_0) {
    writeBlock(type, x, largestOf(x, BLOCK) / 127, 0, out);
    return;
  }
  let low = v128.load(x), high = low;
  for (let at: usize = 16; at < BLOCK_FLOATS; at += 16) {
    const values = v128.load(x + at);
    low = f32x4.pmin(low, values);
    high = f32x4.pmax(high, values);
  }
  const largest = largestLane(high), smallest = -largestLane(f32x4.neg(low));
  if (hasMins(type)) {
    writeBlock(type, x, (largest - smallest) / <f32>highestOf(type), smallest, out);
  } else {
    const peak = -smallest >= largest ? smallest : largest;
    writeBlock(type, x, -peak / <f32>biasOf(type), 0, out);
  }
}

/** Encodes up to four blocks with scales from a search. `spread`: mean square of the row. */
// @ts-expect-error: decorator
@inline
function encodeTile(type: i32, x: usize, count: i32, importance: usize, spread: f64, out: usize): void {
  if (count < LANES) {
    x = copyLast(x, count, LAST_VALUES);
    if (importance) importance = copyLast(importance, count, LAST_IMPORTANCE);
  }
  const peak = largestOf(x, BLOCK * LANES);
  if (peak < NEGLIGIBLE) {
    memory.fill(out, 0, <usize>count * blockBytes(type));
    return;
  }
  const unit = powerBelow(peak);
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
  else searchSymmetric(BLOCK, <f32>biasOf(type), SCALES);
  for (let i: usize = 0; i < <usize>count; i++) {
    const scale = load<f32>(SCALES + (i << 2)) * unit;
    const least = hasMins(type) ? -load<f32>(MINS + (i << 2)) * unit : 0;
    writeBlock(type, x + i * BLOCK_FLOATS, scale, least, out + i * blockBytes(type));
  }
}

function copyLast(from: usize, count: i32, to: usize): usize {
  memory.copy(to, from, <usize>count * BLOCK_FLOATS);
  memory.fill(to + <usize>count * BLOCK_FLOATS, 0, <usize>(LANES - count) * BLOCK_FLOATS);
  return to;
}

/** Writes a block with a given scale and min. Levels are those nearest to the values with the scale and min as stored. */
// @ts-expect-error: decorator
@inline
function writeBlock(type: i32, x: usize, scale: f32, least: f32, out: usize): void {
  const storedScale = half(scale);
  store<u16>(out, storedScale);
  const rounded = float(storedScale);
  const factor = rounded == 0 ? <f32>0 : 1 / rounded;
  if (type == Q8_0) {
    v128.store(out, sixteenLevels(x, 0, factor, -127, 127, 0), 2);
    v128.store(out, sixteenLevels(x + 64, 0, factor, -127, 127, 0), 18);
    return;
  }
  if (type == IQ4_NL) {
    v128.store(out, nibbles(nearestCodes(x, factor), nearestCodes(x + 64, factor)), 2);
    return;
  }
  let shift: f32 = 0;
  if (hasMins(type)) {
    const storedMin = half(least);
    store<u16>(out, storedMin, 2);
    shift = -float(storedMin);
  }
  const bias = biasOf(type), highest = highestOf(type);
  const low = sixteenLevels(x, shift, factor, -bias, highest, bias);
  const high = sixteenLevels(x + 64, shift, factor, -bias, highest, bias);
  let quants = out + (hasMins(type) ? 4 : 2);
  if (hasFifthBits(type)) {
    store<u16>(quants, <u16>i8x16.bitmask(i8x16.shl(low, 3)));
    store<u16>(quants, <u16>i8x16.bitmask(i8x16.shl(high, 3)), 2);
    quants += 4;
  }
  v128.store(quants, nibbles(low, high));
}
