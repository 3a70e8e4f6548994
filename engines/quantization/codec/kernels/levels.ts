// Levels: conversion of floats to rounded bytes and of bytes to floats, 16 at a time. Also the assignment of the sub-blocks'
// scales to the levels of their super-scale.
import { sumOfLanes } from "../../../wasm/kernels/arithmetic";
import { NEGLIGIBLE } from "./tile";

/** 1.5 * 2^23. Added to a number below 2^22, it leaves the nearest integer in the low bits of the sum. */
const ROUND: f32 = 12582912;
const ROUND_BITS: i32 = 0x4b400000;
/** Trial scales on each side, and their distance in levels. */
const SIDE: i32 = 9;
const STEP: f32 = 0.1;
/** Number of times that levels and scale are adapted to each other. */
const ROUNDS: i32 = 3;

/** Scales of a super-block's blocks, their mins, and the sums of their weights: the input of fitScales(). */
export const SCALES: usize = memory.data(64, 16);
export const MINS: usize = memory.data(64, 16);
export const SUMS: usize = memory.data(64, 16);

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

/** Results of sumUp(): weighted sums of scales times levels, and of squared levels. */
let products: f32 = 0;
let squares: f32 = 0;

/**
 * Finds a super-scale for `count` scales, so that scale = super-scale * level, with levels lowest..highest. The scale of
 * the largest magnitude becomes about `anchor`. Minimises the squared error weighted by SUMS. Replaces the scales by
 * their levels (i8, from the beginning of the same memory). Returns the super-scale.
 */
export function fitScales(scales: usize, count: i32, anchor: f32, lowest: f32, highest: f32): f32 {
  let low: f32 = 0, high: f32 = 0;
  for (let i = 0; i < count; i++) {
    low = min(low, load<f32>(scales + (i << 2)));
    high = max(high, load<f32>(scales + (i << 2)));
  }
  const peak = lowest < 0 && -low > high ? low : high;
  let superScale: f32 = 0;
  if (abs(peak) > NEGLIGIBLE) {
    let best: f32 = -1, trial: f32 = 0;
    for (let i = -SIDE; i <= SIDE; i++) {
      const next = (anchor + STEP * <f32>i) / peak;
      sumUp(scales, count, next, lowest, highest);
      if (squares > 0 && products * products > best * squares) {
        best = products * products / squares;
        trial = next;
      }
    }
    for (let round = 0; round < ROUNDS; round++) {
      sumUp(scales, count, trial, lowest, highest);
      superScale = squares > 0 ? products / squares : 0;
      trial = superScale == 0 ? 0 : 1 / superScale;
    }
  }
  const factor = superScale == 0 ? <f32>0 : 1 / superScale;
  for (let i = 0; i < count; i++) {
    const level = nearest(load<f32>(scales + (i << 2)) * factor);
    store<i8>(scales + i, <i8>max(min(level, highest), lowest));
  }
  return superScale;
}

/** Sums over all scales, with levels that a factor makes of them. */
function sumUp(scales: usize, count: i32, factor: f32, lowest: f32, highest: f32): void {
  const factors = f32x4.splat(factor), floor = f32x4.splat(lowest), ceiling = f32x4.splat(highest);
  let both = f32x4.splat(0), square = both;
  for (let at: usize = 0; at < <usize>count << 2; at += 16) {
    const x = v128.load(scales + at), weight = v128.load(SUMS + at);
    const level = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(x, factors)), ceiling), floor);
    const weighted = f32x4.mul(weight, level);
    both = f32x4.add(both, f32x4.mul(weighted, x));
    square = f32x4.add(square, f32x4.mul(weighted, level));
  }
  products = sumOfLanes(both);
  squares = sumOfLanes(square);
}
