// Float matrices: F32, F16 and BF16, each stored in its own type. Rows are stored in groups of four. A group has a vector for each column,
// with one row per lane. Each activation is copied to all lanes, so products need no sums across lanes.
//
// F16: the bits of a value, moved to their positions in an F32, represent the value times 2^-112. A subnormal F16 would become a subnormal
// F32, and a product with a subnormal number takes 100 cycles or more on Intel CPUs. Therefore, if all values of a group are below 128, as
// in nearly all groups, the group is stored with exponents that are larger by 10. Then all values are normal and still exact, and represent
// the weights times 2^-102. Each group is followed by the factor by which its sums must be multiplied.

import { F16, F32 } from "../types";
import { FACTOR_BYTES, multiplyFloats } from "./float-products";

/**
 * Factor of the activations for F16: 2^80, a part of the total factor 2^112 or 2^102. The other part is applied to the sums. Activations,
 * products and sums thus stay in range.
 */
const F16_ACTIVATION_FACTOR: f32 = 1.2089258196146292e24;
/** Factor of the sums for a group with the original exponents of F16: 2^32. */
const F16_SUM_FACTOR: f32 = 4294967296.0;
/** Factor of the sums for a group with exponents that are larger by 10: 2^22. */
const SHIFTED_SUM_FACTOR: f32 = 4194304.0;

// @ts-expect-error: decorator
@inline
function valueBytes(type: i32): i32 {
  return type == F32 ? 4 : 2;
}

/** Returns the size in bytes of a packed group of four rows. */
// @ts-expect-error: decorator
@inline
function groupBytes(type: i32, k: i32): usize {
  return <usize>(k * valueBytes(type) * 4) + (type == F16 ? FACTOR_BYTES : 0);
}

export function matrixBytes(type: i32, rows: i32, k: i32): i32 {
  return (rows >> 2) * <i32>groupBytes(type, k);
}

/** Packs rows and checks for NaN and infinity; see kernel-exports.ts. */
export function packRows(type: i32, source: usize, target: usize, firstRow: i32, count: i32, rows: i32, k: i32): i32 {
  const rowBytes = <usize>(k * valueBytes(type));
  const padded = (count + 15) & ~15;
  const bytes = groupBytes(type, k);
  target += <usize>(firstRow >> 2) * bytes;
  for (let row = 0; row < padded; row += 4) {
    const present = min(count - row, 4);
    if (present <= 0) {
      memory.fill(target, 0, bytes);
    } else {
      const bad = packGroup(type, source, target, rowBytes, present);
      if (bad) return row + bad;
      if (type == F16) shiftExponents(target, target + bytes - FACTOR_BYTES);
    }
    source += rowBytes << 2;
    target += bytes;
  }
  return 0;
}

/**
 * Packs a group of `present` rows; missing rows become zeros. Returns 1 + the index of the first row with a NaN or an
 * infinity; 0 if there is none.
 */
function packGroup(type: i32, source: usize, target: usize, rowBytes: usize, present: i32): i32 {
  const exponent = type == F32 ? i32x4.splat(0x7f800000) : i16x8.splat(type == F16 ? 0x7c00 : 0x7f80);
  // If a row is missing, the first row is read in its place and masked to zero.
  const keepB = i32x4.splat(present > 1 ? -1 : 0);
  const keepC = i32x4.splat(present > 2 ? -1 : 0);
  const keepD = i32x4.splat(present > 3 ? -1 : 0);
  const toB = present > 1 ? rowBytes : 0;
  const toC = present > 2 ? rowBytes * 2 : 0;
  const toD = present > 3 ? rowBytes * 3 : 0;
  let badA = i32x4.splat(0);
  let badB = badA;
  let badC = badA;
  let badD = badA;
  for (const end = source + rowBytes; source != end; source += 16) {
    const a = v128.load(source);
    const b = v128.and(v128.load(source + toB), keepB);
    const c = v128.and(v128.load(source + toC), keepC);
    const d = v128.and(v128.load(source + toD), keepD);
    badA = v128.or(badA, notFinite(type, a, exponent));
    badB = v128.or(badB, notFinite(type, b, exponent));
    badC = v128.or(badC, notFinite(type, c, exponent));
    badD = v128.or(badD, notFinite(type, d, exponent));
    if (type == F32) storeColumns(a, b, c, d, target);
    else storeNarrowColumns(a, b, c, d, target);
    target += 64;
  }
  if (v128.any_true(badA)) return 1;
  if (v128.any_true(badB)) return 2;
  if (v128.any_true(badC)) return 3;
  return v128.any_true(badD) ? 4 : 0;
}

/**
 * Adds 10 to the exponents of the packed F16 values from `at` to `end` if all values are below 128. Stores the factor of the sums at `end`.
 */
function shiftExponents(at: usize, end: usize): void {
  const withoutSign = i16x8.splat(0x7fff);
  let largest = i16x8.splat(0);
  for (let from = at; from != end; from += 16) {
    largest = i16x8.max_s(largest, v128.and(v128.load(from), withoutSign));
  }
  // Exponents have five bits, so only exponents up to 21 can be increased by 10. The exponent of 128 is 22.
  const isShifted = !v128.any_true(i16x8.ge_s(largest, i16x8.splat(22 << 10)));
  v128.store(end, f32x4.splat(isShifted ? SHIFTED_SUM_FACTOR : F16_SUM_FACTOR));
  if (!isShifted) return;
  const shift = i16x8.splat(10 << 10);
  for (; at != end; at += 16) {
    const values = v128.load(at);
    const isSmall = i16x8.lt_s(v128.and(values, withoutSign), i16x8.splat(1 << 10));
    const shifted = i16x8.add(values, shift);
    v128.store(at, v128.any_true(isSmall) ? v128.bitselect(shiftedSubnormals(values), shifted, isSmall) : shifted);
  }
}

/** Adds 10 to the exponents of subnormal F16 values, which become normal; zeros stay zero. Other values give undefined results. */
function shiftedSubnormals(values: v128): v128 {
  const multiples = v128.and(values, i16x8.splat(0x03ff)); // of 2^-24
  const lower = normalized(i32x4.extend_low_i16x8_u(multiples));
  const upper = normalized(i32x4.extend_high_i16x8_u(multiples));
  return v128.or(i16x8.narrow_i32x4_s(lower, upper), v128.and(values, i16x8.splat(-0x8000)));
}

/**
 * Returns the bits of the numbers multiples * 2^-24 in F16 format, with 10 added to the exponent bits. For example, the exponent bits of
 * 2^-24 become 1. Zero stays zero.
 */
// @ts-expect-error: decorator
@inline
function normalized(multiples: v128): v128 {
  const bits = i32x4.shr_u(f32x4.convert_i32x4_s(multiples), 13);
  return i32x4.max_s(i32x4.sub(bits, i32x4.splat(126 << 10)), i32x4.splat(0));
}

// @ts-expect-error: decorator
@inline
function notFinite(type: i32, values: v128, exponent: v128): v128 {
  const found = v128.and(values, exponent);
  return type == F32 ? i32x4.eq(found, exponent) : i16x8.eq(found, exponent);
}

/** Stores four columns of 32-bit values of four rows. */
// @ts-expect-error: decorator
@inline
function storeColumns(a: v128, b: v128, c: v128, d: v128, target: usize): void {
  const abLower = v128.shuffle<i32>(a, b, 0, 4, 1, 5);
  const cdLower = v128.shuffle<i32>(c, d, 0, 4, 1, 5);
  const abUpper = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cdUpper = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  v128.store(target, v128.shuffle<i64>(abLower, cdLower, 0, 2));
  v128.store(target, v128.shuffle<i64>(abLower, cdLower, 1, 3), 16);
  v128.store(target, v128.shuffle<i64>(abUpper, cdUpper, 0, 2), 32);
  v128.store(target, v128.shuffle<i64>(abUpper, cdUpper, 1, 3), 48);
}

/** Stores eight columns of 16-bit values of four rows. */
// @ts-expect-error: decorator
@inline
function storeNarrowColumns(a: v128, b: v128, c: v128, d: v128, target: usize): void {
  const abLower = v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  const cdLower = v128.shuffle<i16>(c, d, 0, 8, 1, 9, 2, 10, 3, 11);
  const abUpper = v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  const cdUpper = v128.shuffle<i16>(c, d, 4, 12, 5, 13, 6, 14, 7, 15);
  v128.store(target, v128.shuffle<i32>(abLower, cdLower, 0, 4, 1, 5));
  v128.store(target, v128.shuffle<i32>(abLower, cdLower, 2, 6, 3, 7), 16);
  v128.store(target, v128.shuffle<i32>(abUpper, cdUpper, 0, 4, 1, 5), 32);
  v128.store(target, v128.shuffle<i32>(abUpper, cdUpper, 2, 6, 3, 7), 48);
}

export function readRow(type: i32, matrix: usize, row: i32, rows: i32, k: i32, out: usize): void {
  const size = <usize>valueBytes(type);
  const group = matrix + <usize>(row >> 2) * groupBytes(type, k);
  const factor = type == F16 ? load<f32>(group + (<usize>k << 3)) * F16_ACTIVATION_FACTOR : 1;
  let from = group + <usize>(row & 3) * size;
  for (const end = out + (<usize>k << 2); out != end; out += 4) {
    store<f32>(out, readValue(type, from) * factor);
    from += size << 2;
  }
}

/** Returns a value of the matrix as a float. For F16, the factor of the group is not yet applied. */
// @ts-expect-error: decorator
@inline
function readValue(type: i32, at: usize): f32 {
  if (type == F32) return load<f32>(at);
  if (type == F16) return reinterpret<f32>((<i32>load<i16>(at) << 13) & 0x8fffe000);
  return reinterpret<f32>(<i32>load<u16>(at) << 16);
}

export function activationBytes(type: i32, n: i32, k: i32): i32 {
  return (n * k) << 2;
}

/**
 * Interleaves four rows of activations at a time, column by column. The last one to three rows are interleaved
 * together.
 */
export function prepare(type: i32, x: usize, stride: i32, n: i32, k: i32, out: usize): void {
  const scale = f32x4.splat(type == F16 ? F16_ACTIVATION_FACTOR : 1);
  const rowBytes = <usize>stride << 2;
  for (; n >= 4; n -= 4) {
    prepareFour(x, rowBytes, k, scale, out);
    x += rowBytes << 2;
    out += <usize>k << 4;
  }
  if (n == 1) prepareOne(x, k, scale, out);
  else if (n > 1) prepareSome(x, rowBytes, n, k, f32x4.extract_lane(scale, 0), out);
}

function prepareOne(x: usize, k: i32, scale: v128, out: usize): void {
  const bytes = <usize>k << 2;
  for (let at: usize = 0; at < bytes; at += 16) v128.store(out + at, f32x4.mul(v128.load(x + at), scale));
}

function prepareSome(x: usize, rowBytes: usize, n: i32, k: i32, scale: f32, out: usize): void {
  for (const end = x + (<usize>k << 2); x != end; x += 4) {
    for (let i = 0; i < n; i++) {
      store<f32>(out, load<f32>(x + rowBytes * i) * scale);
      out += 4;
    }
  }
}

function prepareFour(x: usize, rowBytes: usize, k: i32, scale: v128, out: usize): void {
  for (const end = x + (<usize>k << 2); x != end; x += 16) {
    const a = f32x4.mul(v128.load(x), scale);
    const b = f32x4.mul(v128.load(x + rowBytes), scale);
    const c = f32x4.mul(v128.load(x + rowBytes * 2), scale);
    const d = f32x4.mul(v128.load(x + rowBytes * 3), scale);
    storeColumns(a, b, c, d, out);
    out += 64;
  }
}

/** Specified in kernel-exports.ts; implemented in float-products.ts. */
export function multiply(type: i32, matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  if (type == F32) multiplyFloats<f32>(matrix, rows, k, x, n, y, stride);
  else if (type == F16) multiplyFloats<i16>(matrix, rows, k, x, n, y, stride);
  else multiplyFloats<u16>(matrix, rows, k, x, n, y, stride);
}
