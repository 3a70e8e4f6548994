// Row packing: converts rows of a GGUF file to the matrix format of layout.ts. Every weight of the types with blocks of
// 32 columns is packed when the model is loaded.

import { MXFP4, Q8_0 } from "../types";
import {
  BLOCK,
  fifthBytes,
  flippedIn,
  hasMinimums,
  MINIMUMS_AT,
  quantBytes,
  ROWS,
  scaleBytes,
  scalesBytes,
} from "./layout";

const HALF_EXPONENT: i32 = 0x7c00;
/** MXFP4 exponent that means NaN. */
const NO_EXPONENT: i32 = 0xff;

export function matrixBytes(type: i32, rows: i32, k: i32): i32 {
  return rows * (k / BLOCK) * fileBlockBytes(type);
}

/** Returns the size in bytes of one row's block in the file. The packed block has the same size. */
// @ts-expect-error: decorator
@inline
function fileBlockBytes(type: i32): i32 {
  return fileScaleBytes(type) + quantBytes(type);
}

/**
 * Returns the size in bytes of a block's scale in the file. If the type has mins, the size includes the block's min.
 */
// @ts-expect-error: decorator
@inline
function fileScaleBytes(type: i32): i32 {
  if (type == MXFP4) return 1;
  return hasMinimums(type) ? 4 : 2;
}

export function packRows(type: i32, source: usize, target: usize, firstRow: i32, count: i32, rows: i32, k: i32): i32 {
  const blocks = k / BLOCK;
  const rowBytes = <usize>blocks * fileBlockBytes(type);
  const end = (count + 15) & ~15;
  for (let row = 0; row < end; row += ROWS) {
    const group = (firstRow + row) / ROWS;
    const left = count - row;
    if (left > 0) {
      // If the group has fewer than four rows, its first row is packed in place of each missing row. The copies are
      // cleared afterwards.
      const from = source + <usize>row * rowBytes;
      const one = left > 1 ? rowBytes : 0, two = left > 2 ? rowBytes * 2 : 0, three = left > 3 ? rowBytes * 3 : 0;
      const finite = type == Q8_0
        ? packGroup(Q8_0, from, one, two, three, target, group, rows, blocks)
        : packGroup(type, from, one, two, three, target, group, rows, blocks);
      if (!finite) {
        let bad = row;
        while (hasFiniteScales(type, source + <usize>bad * rowBytes, blocks)) bad++;
        return bad + 1;
      }
    }
    for (let lane = max(left, 0); lane < ROWS; lane++) clearRow(type, target, group, lane, rows, blocks);
  }
  return 0;
}

/**
 * Packs four rows. Rows 1, 2 and 3 begin `one`, `two` and `three` bytes after row 0. Returns whether all scales are
 * finite.
 */
// @ts-expect-error: decorator
@inline
function packGroup(
  type: i32,
  row: usize,
  one: usize,
  two: usize,
  three: usize,
  matrix: usize,
  group: i32,
  rows: i32,
  blocks: i32,
): bool {
  const bytes = <usize>quantBytes(type);
  let quants = matrix + <usize>group * blocks * ROWS * bytes;
  let scales = matrix + <usize>rows * blocks * bytes + <usize>group * blocks * scalesBytes(type);
  const skip = <usize>fileScaleBytes(type), fifths = <usize>fifthBytes(type);
  const flipped = flippedIn(type);
  let notFinite = i16x8.splat(0);
  for (let b = 0; b < blocks; b++) {
    notFinite = v128.or(notFinite, packScales(type, row, one, two, three, scales));
    let at = row + skip;
    if (fifths) {
      v128.store(quants, transposedBits(fourWords(at, one, two, three)));
      quants += fifths << 2;
      at += fifths;
    }
    transpose(flipped, v128.load(at), v128.load(at + one), v128.load(at + two), v128.load(at + three), quants);
    if (type == Q8_0) {
      const next = at + 16;
      const out = quants + 64;
      transpose(flipped, v128.load(next), v128.load(next + one), v128.load(next + two), v128.load(next + three), out);
    }
    row += skip + bytes;
    quants += bytes - fifths << 2;
    scales += scalesBytes(type);
  }
  return !v128.any_true(notFinite);
}

/**
 * Stores the scales of a block of four rows. Returns a vector with all bits set in the lanes of scales that are not
 * finite.
 */
// @ts-expect-error: decorator
@inline
function packScales(type: i32, row: usize, one: usize, two: usize, three: usize, out: usize): v128 {
  if (type == MXFP4) {
    const exponents = fourBytes(row, one, two, three);
    v128.store32_lane(out, exponents, 0);
    return i8x16.eq(exponents, i8x16.splat(<i8>NO_EXPONENT));
  }
  const halves = fourHalves(row, one, two, three);
  v128.store64_lane(out, halves, 0);
  if (!hasMinimums(type)) return exponentsFull(halves);
  const least = fourHalves(row + 2, one, two, three);
  v128.store64_lane(out + MINIMUMS_AT, least, 0);
  return v128.or(exponentsFull(halves), exponentsFull(least));
}

// @ts-expect-error: decorator
@inline
function fourBytes(at: usize, one: usize, two: usize, three: usize): v128 {
  const first = v128.load8_lane(at + one, v128.load8_lane(at, i32x4.splat(0), 0), 1);
  return v128.load8_lane(at + three, v128.load8_lane(at + two, first, 2), 3);
}

// @ts-expect-error: decorator
@inline
function fourWords(at: usize, one: usize, two: usize, three: usize): v128 {
  const first = v128.load32_lane(at + one, v128.load32_lane(at, i32x4.splat(0), 0), 1);
  return v128.load32_lane(at + three, v128.load32_lane(at + two, first, 2), 3);
}

/**
 * Permutes the fifth bits of four rows: from the order of the file (bit c belongs to column c) to the order that
 * layout.ts defines. Each of the four steps exchanges two digits in the binary index of every bit.
 */
// @ts-expect-error: decorator
@inline
function transposedBits(bits: v128): v128 {
  bits = swapped(bits, 3, 0x0a0a0a0a);
  bits = swapped(bits, 6, 0x00cc00cc);
  bits = swapped(bits, 8, 0x0000ff00);
  return swapped(bits, 4, 0x00f000f0);
}

/** Exchanges the bits that are set in `mask` with the bits that are `by` positions higher. */
// @ts-expect-error: decorator
@inline
function swapped(bits: v128, by: i32, mask: i32): v128 {
  const differ = v128.and(v128.xor(i32x4.shr_u(bits, by), bits), i32x4.splat(mask));
  return v128.xor(bits, v128.or(differ, i32x4.shl(differ, by)));
}

// @ts-expect-error: decorator
@inline
function fourHalves(at: usize, one: usize, two: usize, three: usize): v128 {
  const first = v128.load16_lane(at + one, v128.load16_lane(at, i32x4.splat(0), 0), 1);
  return v128.load16_lane(at + three, v128.load16_lane(at + two, first, 2), 3);
}

/** Stores 16 bytes of each of four rows so that each lane of a vector has four bytes of one row. */
// @ts-expect-error: decorator
@inline
function transpose(flipped: i32, r0: v128, r1: v128, r2: v128, r3: v128, out: usize): void {
  const flip = i32x4.splat(flipped);
  const a = v128.xor(i32x4.shuffle(r0, r1, 0, 4, 1, 5), flip), b = v128.xor(i32x4.shuffle(r2, r3, 0, 4, 1, 5), flip);
  const c = v128.xor(i32x4.shuffle(r0, r1, 2, 6, 3, 7), flip), d = v128.xor(i32x4.shuffle(r2, r3, 2, 6, 3, 7), flip);
  v128.store(out, i64x2.shuffle(a, b, 0, 2));
  v128.store(out, i64x2.shuffle(a, b, 1, 3), 16);
  v128.store(out, i64x2.shuffle(c, d, 0, 2), 32);
  v128.store(out, i64x2.shuffle(c, d, 1, 3), 48);
}

/** Returns a vector with all bits set in the lanes of float16 numbers that are infinite or NaN. */
// @ts-expect-error: decorator
@inline
function exponentsFull(halves: v128): v128 {
  const full = i16x8.splat(<i16>HALF_EXPONENT);
  return i16x8.eq(v128.and(halves, full), full);
}

/** Whether all scales and mins of a row are finite. */
function hasFiniteScales(type: i32, row: usize, blocks: i32): bool {
  for (let b = 0; b < blocks; b++) {
    if (type == MXFP4) {
      if (load<u8>(row) == NO_EXPONENT) return false;
    } else {
      if ((load<u16>(row) & HALF_EXPONENT) == HALF_EXPONENT) return false;
      if (hasMinimums(type) && (load<u16>(row, 2) & HALF_EXPONENT) == HALF_EXPONENT) return false;
    }
    row += fileBlockBytes(type);
  }
  return true;
}

/** Clears the quants and scales of a row, so that all its weights are zero. */
function clearRow(type: i32, matrix: usize, group: i32, lane: i32, rows: i32, blocks: i32): void {
  const bytes = quantBytes(type), width = scaleBytes(type);
  let quants = matrix + <usize>group * blocks * ROWS * bytes + (lane << 2);
  let scales = matrix + <usize>rows * blocks * bytes + <usize>group * blocks * scalesBytes(type) + lane * width;
  for (let b = 0; b < blocks; b++) {
    for (let j = 0; j < bytes; j += 4) store<u32>(quants + j * ROWS, 0);
    for (let j = 0; j < scalesBytes(type); j += ROWS * width) memory.fill(scales + j, 0, width);
    quants += ROWS * bytes;
    scales += scalesBytes(type);
  }
}
