// Matrix products of attention: one to four rows of factors times a matrix. The matrix contains floats, or numbers of a
// KV page that have not been converted. T is the number type of the matrix: f32 for floats, i16 for float16, u16 for
// bfloat16, i8 for Q8_0.
//
// The matrix is stored in panels of eight columns, so it is read sequentially. A panel has `depth` rows of eight
// numbers. Each panel begins `eightBytes` bytes after the previous panel.
//
// Six to eight sums are kept in registers. With fewer sums, each addition would wait for the previous one. More sums do
// not fit in the registers. More unrolling is slower, because V8 runs out of registers.

import { multiplyAdd } from "../arithmetic";
import { bfloatAt, bytesAt, float16At } from "./attention-pages";

/** Initialises row r of the row table at `rows`: address `a` of its factors, address `c` of its results, scale 0. */
// @ts-expect-error: decorator
@inline
export function setRow(rows: usize, r: i32, a: usize, c: usize): void {
  const row = rows + (<usize>r << 4);
  store<usize>(row, a);
  store<usize>(row, c, 4);
  store<f32>(row, 0, 8);
}

// @ts-expect-error: decorator
@inline
export function setScale(rows: usize, r: i32, s: f32): void {
  store<f32>(rows + (<usize>r << 4), s, 8);
}

// @ts-expect-error: decorator
@inline
export function resultOf(rows: usize, r: i32): usize {
  return load<usize>(rows + (<usize>r << 4), 4);
}

/**
 * Multiplies `count` rows of `a` (1 to 4 rows) by the first 4 * `vectors` columns of `b`. aOffset is added to the
 * address of each row of `a`, cOffset to the address of each row of `c`; both are in bytes. If `fresh` is true, up to
 * 32 floats of each c[r] may be overwritten, even beyond these columns. With sum = sum over i < depth of a[r][i] *
 * b[i][j], the new c[r][j] is:
 * - If `fresh` is false: sum + the row's scale * the previous c[r][j].
 * - If `fresh` is true and T is not i8: sum.
 * - If `fresh` is true and T is i8: sum * scales[j] + the previous c[r][j].
 */
export function multiplyRows<T>(
  count: i32, fresh: bool, rows: usize, aOffset: usize, cOffset: usize, depth: usize, b: usize, eightBytes: usize,
  vectors: i32, scales: usize,
): void {
  if (count == 4) multiplyFour<T>(fresh, rows, aOffset, cOffset, depth, b, eightBytes, vectors, scales);
  else if (count == 3) multiplyThree<T>(fresh, rows, aOffset, cOffset, depth, b, eightBytes, vectors, scales);
  else if (count == 2) multiplyTwo<T>(fresh, rows, aOffset, cOffset, depth, b, eightBytes, vectors, scales);
  else multiplyOne<T>(fresh, rows, aOffset, cOffset, depth, b, eightBytes, vectors, scales);
}

function multiplyFour<T>(
  fresh: bool, rows: usize, aOffset: usize, cOffset: usize, depth: usize, b: usize, eightBytes: usize, vectors: i32,
  scales: usize,
): void {
  const a0 = load<usize>(rows) + aOffset;
  const a1 = load<usize>(rows, 16) + aOffset;
  const a2 = load<usize>(rows, 32) + aOffset;
  const a3 = load<usize>(rows, 48) + aOffset;
  const c0 = load<usize>(rows, 4) + cOffset;
  const c1 = load<usize>(rows, 20) + cOffset;
  const c2 = load<usize>(rows, 36) + cOffset;
  const c3 = load<usize>(rows, 52) + cOffset;
  const s0 = load<f32>(rows, 8);
  const s1 = load<f32>(rows, 24);
  const s2 = load<f32>(rows, 40);
  const s3 = load<f32>(rows, 56);
  const whole = <usize>(fresh ? (vectors + 1) & ~1 : vectors & ~1) << 4;
  for (let j: usize = 0; j < whole; j += 32) {
    let x00 = start(fresh, c0 + j, 0, s0);
    let x01 = start(fresh, c0 + j, 16, s0);
    let x10 = start(fresh, c1 + j, 0, s1);
    let x11 = start(fresh, c1 + j, 16, s1);
    let x20 = start(fresh, c2 + j, 0, s2);
    let x21 = start(fresh, c2 + j, 16, s2);
    let x30 = start(fresh, c3 + j, 0, s3);
    let x31 = start(fresh, c3 + j, 16, s3);
    let bAt = b + (j >> 5) * eightBytes;
    for (let i: usize = 0; i < depth << 2; i += 4) {
      const v0 = vectorAt<T>(bAt, 0);
      const v1 = vectorAt<T>(bAt, 1);
      const f0 = v128.load32_splat(a0 + i);
      const f1 = v128.load32_splat(a1 + i);
      const f2 = v128.load32_splat(a2 + i);
      const f3 = v128.load32_splat(a3 + i);
      x00 = multiplyAdd(f0, v0, x00);
      x01 = multiplyAdd(f0, v1, x01);
      x10 = multiplyAdd(f1, v0, x10);
      x11 = multiplyAdd(f1, v1, x11);
      x20 = multiplyAdd(f2, v0, x20);
      x21 = multiplyAdd(f2, v1, x21);
      x30 = multiplyAdd(f3, v0, x30);
      x31 = multiplyAdd(f3, v1, x31);
      bAt += 8 * sizeof<T>();
    }
    finish<T>(fresh, c0 + j, 0, x00, scales + j);
    finish<T>(fresh, c0 + j, 16, x01, scales + j);
    finish<T>(fresh, c1 + j, 0, x10, scales + j);
    finish<T>(fresh, c1 + j, 16, x11, scales + j);
    finish<T>(fresh, c2 + j, 0, x20, scales + j);
    finish<T>(fresh, c2 + j, 16, x21, scales + j);
    finish<T>(fresh, c3 + j, 0, x30, scales + j);
    finish<T>(fresh, c3 + j, 16, x31, scales + j);
  }
  if (fresh) return;
  const rest = (<usize>vectors << 4) - whole;
  multiplyRest<T>(a0, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c0 + whole, s0);
  multiplyRest<T>(a1, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c1 + whole, s1);
  multiplyRest<T>(a2, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c2 + whole, s2);
  multiplyRest<T>(a3, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c3 + whole, s3);
}

function multiplyThree<T>(
  fresh: bool, rows: usize, aOffset: usize, cOffset: usize, depth: usize, b: usize, eightBytes: usize, vectors: i32,
  scales: usize,
): void {
  const a0 = load<usize>(rows) + aOffset;
  const a1 = load<usize>(rows, 16) + aOffset;
  const a2 = load<usize>(rows, 32) + aOffset;
  const c0 = load<usize>(rows, 4) + cOffset;
  const c1 = load<usize>(rows, 20) + cOffset;
  const c2 = load<usize>(rows, 36) + cOffset;
  const s0 = load<f32>(rows, 8);
  const s1 = load<f32>(rows, 24);
  const s2 = load<f32>(rows, 40);
  const whole = <usize>(fresh ? (vectors + 1) & ~1 : vectors & ~1) << 4;
  for (let j: usize = 0; j < whole; j += 32) {
    let x00 = start(fresh, c0 + j, 0, s0);
    let x01 = start(fresh, c0 + j, 16, s0);
    let x10 = start(fresh, c1 + j, 0, s1);
    let x11 = start(fresh, c1 + j, 16, s1);
    let x20 = start(fresh, c2 + j, 0, s2);
    let x21 = start(fresh, c2 + j, 16, s2);
    let bAt = b + (j >> 5) * eightBytes;
    for (let i: usize = 0; i < depth << 2; i += 4) {
      const v0 = vectorAt<T>(bAt, 0);
      const v1 = vectorAt<T>(bAt, 1);
      const f0 = v128.load32_splat(a0 + i);
      const f1 = v128.load32_splat(a1 + i);
      const f2 = v128.load32_splat(a2 + i);
      x00 = multiplyAdd(f0, v0, x00);
      x01 = multiplyAdd(f0, v1, x01);
      x10 = multiplyAdd(f1, v0, x10);
      x11 = multiplyAdd(f1, v1, x11);
      x20 = multiplyAdd(f2, v0, x20);
      x21 = multiplyAdd(f2, v1, x21);
      bAt += 8 * sizeof<T>();
    }
    finish<T>(fresh, c0 + j, 0, x00, scales + j);
    finish<T>(fresh, c0 + j, 16, x01, scales + j);
    finish<T>(fresh, c1 + j, 0, x10, scales + j);
    finish<T>(fresh, c1 + j, 16, x11, scales + j);
    finish<T>(fresh, c2 + j, 0, x20, scales + j);
    finish<T>(fresh, c2 + j, 16, x21, scales + j);
  }
  if (fresh) return;
  const rest = (<usize>vectors << 4) - whole;
  multiplyRest<T>(a0, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c0 + whole, s0);
  multiplyRest<T>(a1, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c1 + whole, s1);
  multiplyRest<T>(a2, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c2 + whole, s2);
}

function multiplyTwo<T>(
  fresh: bool, rows: usize, aOffset: usize, cOffset: usize, depth: usize, b: usize, eightBytes: usize, vectors: i32,
  scales: usize,
): void {
  const a0 = load<usize>(rows) + aOffset;
  const a1 = load<usize>(rows, 16) + aOffset;
  const c0 = load<usize>(rows, 4) + cOffset;
  const c1 = load<usize>(rows, 20) + cOffset;
  const s0 = load<f32>(rows, 8);
  const s1 = load<f32>(rows, 24);
  const whole = <usize>(fresh ? (vectors + 3) & ~3 : vectors & ~3) << 4;
  for (let j: usize = 0; j < whole; j += 64) {
    let x00 = start(fresh, c0 + j, 0, s0);
    let x01 = start(fresh, c0 + j, 16, s0);
    let x02 = start(fresh, c0 + j, 32, s0);
    let x03 = start(fresh, c0 + j, 48, s0);
    let x10 = start(fresh, c1 + j, 0, s1);
    let x11 = start(fresh, c1 + j, 16, s1);
    let x12 = start(fresh, c1 + j, 32, s1);
    let x13 = start(fresh, c1 + j, 48, s1);
    let b0 = b + (j >> 5) * eightBytes;
    let b1 = b0 + eightBytes;
    for (let i: usize = 0; i < depth << 2; i += 4) {
      const v0 = vectorAt<T>(b0, 0);
      const v1 = vectorAt<T>(b0, 1);
      const v2 = vectorAt<T>(b1, 0);
      const v3 = vectorAt<T>(b1, 1);
      const f0 = v128.load32_splat(a0 + i);
      const f1 = v128.load32_splat(a1 + i);
      x00 = multiplyAdd(f0, v0, x00);
      x01 = multiplyAdd(f0, v1, x01);
      x02 = multiplyAdd(f0, v2, x02);
      x03 = multiplyAdd(f0, v3, x03);
      x10 = multiplyAdd(f1, v0, x10);
      x11 = multiplyAdd(f1, v1, x11);
      x12 = multiplyAdd(f1, v2, x12);
      x13 = multiplyAdd(f1, v3, x13);
      b0 += 8 * sizeof<T>();
      b1 += 8 * sizeof<T>();
    }
    finish<T>(fresh, c0 + j, 0, x00, scales + j);
    finish<T>(fresh, c0 + j, 16, x01, scales + j);
    finish<T>(fresh, c0 + j, 32, x02, scales + j);
    finish<T>(fresh, c0 + j, 48, x03, scales + j);
    finish<T>(fresh, c1 + j, 0, x10, scales + j);
    finish<T>(fresh, c1 + j, 16, x11, scales + j);
    finish<T>(fresh, c1 + j, 32, x12, scales + j);
    finish<T>(fresh, c1 + j, 48, x13, scales + j);
  }
  if (fresh) return;
  const rest = (<usize>vectors << 4) - whole;
  multiplyRest<T>(a0, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c0 + whole, s0);
  multiplyRest<T>(a1, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c1 + whole, s1);
}

function multiplyOne<T>(
  fresh: bool, rows: usize, aOffset: usize, cOffset: usize, depth: usize, b: usize, eightBytes: usize, vectors: i32,
  scales: usize,
): void {
  const a = load<usize>(rows) + aOffset;
  const c = load<usize>(rows, 4) + cOffset;
  const s = load<f32>(rows, 8);
  const whole = <usize>(fresh ? (vectors + 7) & ~7 : vectors & ~7) << 4;
  for (let j: usize = 0; j < whole; j += 128) {
    let x0 = start(fresh, c + j, 0, s);
    let x1 = start(fresh, c + j, 16, s);
    let x2 = start(fresh, c + j, 32, s);
    let x3 = start(fresh, c + j, 48, s);
    let x4 = start(fresh, c + j, 64, s);
    let x5 = start(fresh, c + j, 80, s);
    let x6 = start(fresh, c + j, 96, s);
    let x7 = start(fresh, c + j, 112, s);
    let b0 = b + (j >> 5) * eightBytes;
    let b1 = b0 + eightBytes;
    let b2 = b1 + eightBytes;
    let b3 = b2 + eightBytes;
    for (let i: usize = 0; i < depth << 2; i += 4) {
      const v0 = vectorAt<T>(b0, 0);
      const v1 = vectorAt<T>(b0, 1);
      const v2 = vectorAt<T>(b1, 0);
      const v3 = vectorAt<T>(b1, 1);
      const v4 = vectorAt<T>(b2, 0);
      const v5 = vectorAt<T>(b2, 1);
      const v6 = vectorAt<T>(b3, 0);
      const v7 = vectorAt<T>(b3, 1);
      const f = v128.load32_splat(a + i);
      x0 = multiplyAdd(f, v0, x0);
      x1 = multiplyAdd(f, v1, x1);
      x2 = multiplyAdd(f, v2, x2);
      x3 = multiplyAdd(f, v3, x3);
      x4 = multiplyAdd(f, v4, x4);
      x5 = multiplyAdd(f, v5, x5);
      x6 = multiplyAdd(f, v6, x6);
      x7 = multiplyAdd(f, v7, x7);
      b0 += 8 * sizeof<T>();
      b1 += 8 * sizeof<T>();
      b2 += 8 * sizeof<T>();
      b3 += 8 * sizeof<T>();
    }
    finish<T>(fresh, c + j, 0, x0, scales + j);
    finish<T>(fresh, c + j, 16, x1, scales + j);
    finish<T>(fresh, c + j, 32, x2, scales + j);
    finish<T>(fresh, c + j, 48, x3, scales + j);
    finish<T>(fresh, c + j, 64, x4, scales + j);
    finish<T>(fresh, c + j, 80, x5, scales + j);
    finish<T>(fresh, c + j, 96, x6, scales + j);
    finish<T>(fresh, c + j, 112, x7, scales + j);
  }
  if (fresh) return;
  const rest = (<usize>vectors << 4) - whole;
  multiplyRest<T>(a, depth, b + (whole >> 5) * eightBytes, eightBytes, rest, c + whole, s);
}

/** Computes the last `bytes` bytes of one row of results, which the unrolled loop does not compute. */
function multiplyRest<T>(a: usize, depth: usize, b: usize, eightBytes: usize, bytes: usize, c: usize, s: f32): void {
  for (let j: usize = 0; j < bytes; j += 16) {
    let sum = f32x4.mul(v128.load(c + j), f32x4.splat(s));
    let at = b + (j >> 5) * eightBytes;
    for (let i: usize = 0; i < depth << 2; i += 4) {
      const vector = j & 16 ? vectorAt<T>(at, 1) : vectorAt<T>(at, 0);
      sum = multiplyAdd(v128.load32_splat(a + i), vector, sum);
      at += 8 * sizeof<T>();
    }
    v128.store(c + j, sum);
  }
}

// @ts-expect-error: decorator
@inline
function start(fresh: bool, at: usize, offset: usize, scale: f32): v128 {
  return fresh ? f32x4.splat(0) : f32x4.mul(v128.load(at + offset), f32x4.splat(scale));
}

// @ts-expect-error: decorator
@inline
function finish<T>(fresh: bool, at: usize, offset: usize, sum: v128, scales: usize): void {
  const total = fresh && sizeof<T>() == 1 ? multiplyAdd(sum, v128.load(scales + offset), v128.load(at + offset)) : sum;
  v128.store(at + offset, total);
}

/** Returns vector `j` (0 or 1) of the eight numbers at `at` as floats. */
// @ts-expect-error: decorator
@inline
function vectorAt<T>(at: usize, j: usize): v128 {
  if (isFloat<T>()) return v128.load(at + (j << 4));
  if (sizeof<T>() == 1) return bytesAt(at + (j >> 1 << 3), j & 1);
  return isSigned<T>() ? float16At(at + (j << 3)) : bfloatAt(at + (j << 3));
}
