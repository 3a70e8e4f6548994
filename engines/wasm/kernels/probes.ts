// Probes: functions that run single instructions. The self-test at start-up uses them to check the special instructions
// of each build. Benchmarks use them to measure the peak rates of dot products and of memory reads.
import { lookUp } from "./block-quants/codebook";

// @ts-ignore: decorator
@inline
function addDot(a: v128, b: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(a, b, sum);
  const low = i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_s(a), i16x8.extend_low_i8x16_s(b));
  const high = i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_s(a), i16x8.extend_high_i8x16_s(b));
  return i32x4.add(sum, i32x4.add(low, high));
}

// @ts-ignore: decorator
@inline
function sumLanes(a: v128): i32 {
  return i32x4.extract_lane(a, 0) + i32x4.extract_lane(a, 1) + i32x4.extract_lane(a, 2) + i32x4.extract_lane(a, 3);
}

export function probeAddDot(a: usize, b: usize, bytes: i32): i32 {
  let sum = i32x4.splat(0);
  for (let i = 0; i < bytes; i += 16) sum = addDot(v128.load(a + i), v128.load(b + i), sum);
  return sumLanes(sum);
}

/**
 * Returns the same dot product as probeAddDot(), computed with the instruction that adds pairs of products in 16 bits.
 * Values of `b` must be below 128.
 */
export function probePairDot(a: usize, b: usize, bytes: i32): i32 {
  if (!ASC_FEATURE_RELAXED_SIMD) return probeAddDot(a, b, bytes);
  let sum = i32x4.splat(0);
  for (let i = 0; i < bytes; i += 16) {
    const pairs = i16x8.relaxed_dot_i8x16_i7x16_s(v128.load(a + i), v128.load(b + i));
    sum = i32x4.add(sum, i32x4.extadd_pairwise_i16x8_s(pairs));
  }
  return sumLanes(sum);
}

/** Returns the sum of table entries. `table` has 16 signed bytes. `indices` has `bytes` indices, all below 16. */
export function probeLookUp(table: usize, indices: usize, bytes: i32): i32 {
  const bytesOfTable = v128.load(table);
  let sum = i32x4.splat(0);
  for (let i = 0; i < bytes; i += 16) {
    const pairs = i16x8.extadd_pairwise_i8x16_s(lookUp(bytesOfTable, v128.load(indices + i)));
    sum = i32x4.add(sum, i32x4.extadd_pairwise_i16x8_s(pairs));
  }
  return sumLanes(sum);
}

/**
 * Runs `count` dot instructions, rounded up to a multiple of 8. Eight accumulators keep the instruction's pipeline
 * full.
 */
export function probeDot(count: i32): i32 {
  const b = i8x16.splat(<i8>(count & 63) | 1);
  let s0 = i32x4.splat(1);
  let s1 = i32x4.splat(2);
  let s2 = i32x4.splat(3);
  let s3 = i32x4.splat(4);
  let s4 = i32x4.splat(5);
  let s5 = i32x4.splat(6);
  let s6 = i32x4.splat(7);
  let s7 = i32x4.splat(8);
  // The sums are also operands, so the compiler cannot move an instruction out of the loop.
  for (; count > 0; count -= 8) {
    s0 = addDot(s0, b, s0);
    s1 = addDot(s1, b, s1);
    s2 = addDot(s2, b, s2);
    s3 = addDot(s3, b, s3);
    s4 = addDot(s4, b, s4);
    s5 = addDot(s5, b, s5);
    s6 = addDot(s6, b, s6);
    s7 = addDot(s7, b, s7);
  }
  const upper = i32x4.add(i32x4.add(s0, s1), i32x4.add(s2, s3));
  return sumLanes(i32x4.add(upper, i32x4.add(i32x4.add(s4, s5), i32x4.add(s6, s7))));
}

/** Reads memory in four streams, each a quarter of the bytes. `bytes` is rounded down to a multiple of 256. */
export function probeReadAll(from: usize, bytes: i32): i32 {
  const quarter = (<usize>bytes >> 8) << 6;
  let a = i32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (const end = from + quarter; from < end; from += 64) {
    a = v128.xor(a, readLine(from));
    b = v128.xor(b, readLine(from + quarter));
    c = v128.xor(c, readLine(from + quarter * 2));
    d = v128.xor(d, readLine(from + quarter * 3));
  }
  return sumLanes(v128.xor(v128.xor(a, b), v128.xor(c, d)));
}

// @ts-ignore: decorator
@inline
function readLine(at: usize): v128 {
  const lower = v128.xor(v128.load(at), v128.load(at, 16));
  return v128.xor(lower, v128.xor(v128.load(at, 32), v128.load(at, 48)));
}
