// Owns packing rows of a GGUF file into a matrix as quantised-layout.ts draws it, and reading one back. Every weight is
// packed at load; rows are read as the embeddings of tokens.
import {
  BLOCK,
  flippedBits,
  HALF_FACTOR,
  HALF_MASK,
  MINIMUMS_AT,
  productsFor,
  quantBytes,
  scalesBytes,
} from "./quantised-layout";
import { Q4_0, Q4_1, Q8_0 } from "./types";

const ROWS: i32 = 4;
const HALF_EXPONENT: i32 = 0x7c00;

export function matrixBytes(type: i32, rows: i32, k: i32): i32 {
  return rows * (k / BLOCK) * fileBlockBytes(type);
}

/** A block takes as many bytes here as in the file. */
// @ts-ignore: decorator
@inline
function fileBlockBytes(type: i32): i32 {
  return fileScaleBytes(type) + quantBytes(type);
}

// @ts-ignore: decorator
@inline
function flippedIn(type: i32): i32 {
  return type == Q8_0 ? flippedBits(productsFor(type)) : 0;
}

/** Scale, and where there is one, minimum. */
// @ts-ignore: decorator
@inline
function fileScaleBytes(type: i32): i32 {
  return type == Q4_1 ? 4 : 2;
}

export function packRows(type: i32, source: usize, target: usize, firstRow: i32, count: i32, rows: i32, k: i32): i32 {
  const blocks = k / BLOCK;
  const rowBytes = <usize>blocks * fileBlockBytes(type);
  const end = (count + 15) & ~15;
  for (let row = 0; row < end; row += ROWS) {
    const group = (firstRow + row) / ROWS;
    const left = count - row;
    if (left > 0) {
      // Rows that do not exist are packed as a copy of one that does, then cleared.
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

/** Packs four rows, `one`, `two` and `three` bytes from the first. Returns whether all their scales are finite. */
// @ts-ignore: decorator
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
  const skip = <usize>fileScaleBytes(type);
  const flipped = flippedIn(type);
  let notFinite = i16x8.splat(0);
  for (let b = 0; b < blocks; b++) {
    const halves = fourHalves(row, one, two, three);
    notFinite = v128.or(notFinite, exponentsFull(halves));
    v128.store64_lane(scales, halves, 0);
    if (type == Q4_1) {
      const least = fourHalves(row + 2, one, two, three);
      notFinite = v128.or(notFinite, exponentsFull(least));
      v128.store64_lane(scales + MINIMUMS_AT, least, 0);
    }
    const at = row + skip;
    transpose(flipped, v128.load(at), v128.load(at + one), v128.load(at + two), v128.load(at + three), quants);
    if (type == Q8_0) {
      const next = at + 16;
      const out = quants + 64;
      transpose(flipped, v128.load(next), v128.load(next + one), v128.load(next + two), v128.load(next + three), out);
    }
    row += skip + bytes;
    quants += bytes << 2;
    scales += scalesBytes(type);
  }
  return !v128.any_true(notFinite);
}

// @ts-ignore: decorator
@inline
function fourHalves(at: usize, one: usize, two: usize, three: usize): v128 {
  const first = v128.load16_lane(at + one, v128.load16_lane(at, i32x4.splat(0), 0), 1);
  return v128.load16_lane(at + three, v128.load16_lane(at + two, first, 2), 3);
}

/** Stores 16 bytes of each of four rows so that each lane of a vector has four bytes of one row. */
// @ts-ignore: decorator
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

/** Lanes of ones where a half is an infinity or not a number. */
// @ts-ignore: decorator
@inline
function exponentsFull(halves: v128): v128 {
  const full = i16x8.splat(<i16>HALF_EXPONENT);
  return i16x8.eq(v128.and(halves, full), full);
}

/** Minimums count as scales. */
function hasFiniteScales(type: i32, row: usize, blocks: i32): bool {
  for (let b = 0; b < blocks; b++) {
    if ((load<u16>(row) & HALF_EXPONENT) == HALF_EXPONENT) return false;
    if (type == Q4_1 && (load<u16>(row, 2) & HALF_EXPONENT) == HALF_EXPONENT) return false;
    row += fileBlockBytes(type);
  }
  return true;
}

function clearRow(type: i32, matrix: usize, group: i32, lane: i32, rows: i32, blocks: i32): void {
  const bytes = quantBytes(type);
  let quants = matrix + <usize>group * blocks * ROWS * bytes + (lane << 2);
  let scales = matrix + <usize>rows * blocks * bytes + <usize>group * blocks * scalesBytes(type) + (lane << 1);
  const zero = type == Q4_0 ? 0x88888888 : flippedIn(type);
  for (let b = 0; b < blocks; b++) {
    for (let j = 0; j < bytes; j += 4) store<u32>(quants + j * ROWS, zero);
    store<u16>(scales, 0);
    if (type == Q4_1) store<u16>(scales + MINIMUMS_AT, 0);
    quants += ROWS * bytes;
    scales += scalesBytes(type);
  }
}

export function readRow(type: i32, matrix: usize, row: i32, rows: i32, k: i32, out: usize): void {
  const blocks = k / BLOCK;
  const bytes = quantBytes(type);
  const group = row / ROWS, lane = row % ROWS;
  let quants = matrix + <usize>group * blocks * ROWS * bytes + (lane << 2);
  let scales = matrix + <usize>rows * blocks * bytes + <usize>group * blocks * scalesBytes(type) + (lane << 1);
  const flip = i32x4.splat(flippedIn(type));
  const bias = i32x4.splat(type == Q4_0 ? 8 : 0);
  for (let b = 0; b < blocks; b++) {
    const scale = f32x4.splat(half(load<u16>(scales)));
    const least = f32x4.splat(type == Q4_1 ? half(load<u16>(scales + MINIMUMS_AT)) : 0);
    for (let j = 0; j < bytes; j += 4) {
      const stored = v128.xor(v128.load32_zero(quants + j * ROWS), flip);
      const four = i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(stored));
      if (type == Q8_0) {
        v128.store(out + (j << 2), f32x4.mul(f32x4.convert_i32x4_s(four), scale));
      } else {
        const low = v128.and(four, i32x4.splat(15)), high = v128.and(i32x4.shr_u(four, 4), i32x4.splat(15));
        const at = out + (j << 2);
        const first = f32x4.mul(f32x4.convert_i32x4_s(i32x4.sub(low, bias)), scale);
        const second = f32x4.mul(f32x4.convert_i32x4_s(i32x4.sub(high, bias)), scale);
        v128.store(at, type == Q4_1 ? f32x4.add(first, least) : first);
        v128.store(at, type == Q4_1 ? f32x4.add(second, least) : second, 64);
      }
    }
    out += BLOCK << 2;
    quants += ROWS * bytes;
    scales += scalesBytes(type);
  }
}

// @ts-ignore: decorator
@inline
function half(bits: u16): f32 {
  const shifted = (<u32>(<i32><i16>bits) << 13) & HALF_MASK;
  return reinterpret<f32>(shifted) * reinterpret<f32>(HALF_FACTOR);
}
