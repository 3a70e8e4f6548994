// Levels: conversion of floats to rounded bytes and of bytes to floats, 16 at a time.

/** 1.5 * 2^23. Added to a number below 2^22, it leaves the nearest integer in the low bits of the sum. */
const ROUND: f32 = 12582912;
const ROUND_BITS: i32 = 0x4b400000;

/**
 * Rounds 16 floats to integers, ties to even, adds `bias`, and saturates them to signed bytes. Floats below -2^22 give
 * wrong results.
 */
// @ts-expect-error: decorator
@inline
export function levelsToBytes(a: v128, b: v128, c: v128, d: v128, bias: i32): v128 {
  const round = f32x4.splat(ROUND), bits = i32x4.splat(ROUND_BITS - bias);
  return i8x16.narrow_i16x8_s(
    i16x8.narrow_i32x4_s(i32x4.sub(f32x4.add(a, round), bits), i32x4.sub(f32x4.add(b, round), bits)),
    i16x8.narrow_i32x4_s(i32x4.sub(f32x4.add(c, round), bits), i32x4.sub(f32x4.add(d, round), bits)),
  );
}

/**
 * Returns the levels of 16 floats at `at`: (x + shift) * factor, rounded and limited to lowest..highest, with `bias`
 * added.
 */
// @ts-expect-error: decorator
@inline
export function sixteenLevels(at: usize, shift: f32, factor: f32, lowest: i32, highest: i32, bias: i32): v128 {
  const shifts = f32x4.splat(shift), factors = f32x4.splat(factor), floor = f32x4.splat(<f32>lowest);
  const a = f32x4.pmax(f32x4.mul(f32x4.add(v128.load(at), shifts), factors), floor);
  const b = f32x4.pmax(f32x4.mul(f32x4.add(v128.load(at, 16), shifts), factors), floor);
  const c = f32x4.pmax(f32x4.mul(f32x4.add(v128.load(at, 32), shifts), factors), floor);
  const d = f32x4.pmax(f32x4.mul(f32x4.add(v128.load(at, 48), shifts), factors), floor);
  return i8x16.min_s(levelsToBytes(a, b, c, d, bias), i8x16.splat(<i8>(highest + bias)));
}

/** Converts 16 signed bytes to floats and multiplies them by `scale`. */
// @ts-expect-error: decorator
@inline
export function storeFloats(bytes: v128, scale: f32, out: usize): void {
  const scales = f32x4.splat(scale);
  const low = i16x8.extend_low_i8x16_s(bytes), high = i16x8.extend_high_i8x16_s(bytes);
  v128.store(out, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low)), scales));
  v128.store(out, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low)), scales), 16);
  v128.store(out, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high)), scales), 32);
  v128.store(out, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high)), scales), 48);
}

/** Adds `shift` to 16 floats. */
// @ts-expect-error: decorator
@inline
export function addToFloats(shift: f32, at: usize): void {
  const shifts = f32x4.splat(shift);
  for (let i: usize = 0; i < 64; i += 16) v128.store(at + i, f32x4.add(v128.load(at + i), shifts));
}
