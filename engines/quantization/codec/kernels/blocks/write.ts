// Output of blocks whose scales and mins are known: rounds them to F16, and the values to levels.
import { IQ4_NL, Q8_0 } from "../../../../wasm/kernels/types";
import { nearestCodes } from "../codes";
import { fourFloats, fourHalves } from "../floats";
import { levelsToBytes } from "../levels";
import { nibbles } from "../pack";
import { BLOCK_FLOATS, biasOf, blockBytes, hasFifthBits, hasMins, highestOf } from "./format";

/** For each of four blocks (a tile): the factor from values to levels, and the min after rounding to F16. */
const FACTORS: usize = memory.data(16, 16);
const SHIFTS: usize = memory.data(16, 16);
/** Scales and mins of the tile's blocks as F16, each in 32 bits. */
const STORED_SCALES: usize = memory.data(16, 16);
const STORED_MINS: usize = memory.data(16, 16);

/**
 * Writes up to four blocks with given scales and mins, which are rounded to F16. Values are then rounded to the nearest levels for the
 * rounded scales and mins.
 */
// @ts-expect-error: decorator
@inline
export function writeTile(type: i32, x: usize, count: i32, scales: v128, mins: v128, out: usize): void {
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

/** Converts four F16, one per 32-bit lane, to floats. */
// @ts-expect-error: decorator
@inline
export function asFloats(halves: v128): v128 {
  return fourFloats(i32x4.shr_s(i32x4.shl(halves, 16), 16));
}

/** Writes the levels of a block of 32 values: (value - shift) * factor, rounded. */
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

/** Returns the levels of 16 values. A block's factor makes them far smaller than 2^22, the limit of levelsToBytes(). */
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
  // Levels of Q8_0 are already limited, because they fill the range of a byte and the conversion to bytes saturates.
  if (type == Q8_0) return levels;
  return i8x16.max_s(i8x16.min_s(levels, i8x16.splat(<i8>(highestOf(type) + biasOf(type)))), i8x16.splat(0));
}

// @ts-expect-error: decorator
@inline
function scaled(type: i32, at: usize, factors: v128, shifts: v128): v128 {
  const x = v128.load(at);
  return f32x4.mul(hasMins(type) ? f32x4.sub(x, shifts) : x, factors);
}
