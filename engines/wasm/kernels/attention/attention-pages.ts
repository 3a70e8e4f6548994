// Layout of keys and values in a page of the KV cache, and their conversion to floats. A page has one part for each KV
// head. A part has these arrays, the outermost dimension first:
//
//   keys     [group of 8 tokens][dimension][token in the group]
//   values   [group of 8 dimensions][token][dimension in the group]
//   scales   only for Q8_0: f32 [group of 32 dimensions][token], first of the keys, then of the values
//
// The lanes of a vector of keys are tokens, so scores need no sums across lanes. The last group of 8 tokens may be
// incomplete, but the page has memory for all 8. Memory that was not written may have any bits: the caller masks the
// scores of these tokens and does not use their values.
import { BF16, F16, F32, Q8_0 } from "../types";

// @ts-expect-error: decorator
@inline
function wholeEights(count: i32): i32 {
  return (count + 7) & ~7;
}

// @ts-expect-error: decorator
@inline
export function valueBytes(kvType: i32): i32 {
  return kvType == F32 ? 4 : kvType == Q8_0 ? 1 : 2;
}

// @ts-expect-error: decorator
@inline
function groupCount(headLength: i32): i32 {
  return (headLength + 31) >> 5;
}

// @ts-expect-error: decorator
@inline
function keyBytes(kvType: i32, headLength: i32, blockTokens: i32): i32 {
  return headLength * wholeEights(blockTokens) * valueBytes(kvType);
}

// @ts-expect-error: decorator
@inline
function allValueBytes(kvType: i32, headLength: i32, blockTokens: i32): i32 {
  return blockTokens * wholeEights(headLength) * valueBytes(kvType);
}

/** Returns the size in bytes of one KV head's part of a page. */
export function headBytes(kvType: i32, headLength: i32, blockTokens: i32): i32 {
  const values = keyBytes(kvType, headLength, blockTokens) + allValueBytes(kvType, headLength, blockTokens);
  const scales = kvType == Q8_0 ? groupCount(headLength) * wholeEights(blockTokens) * 2 * 4 : 0;
  return (values + scales + 15) & ~15;
}

export function kvPageBytes(kvType: i32, kvHeads: i32, headLength: i32, blockTokens: i32): i32 {
  return kvHeads * headBytes(kvType, headLength, blockTokens);
}

/**
 * Each of these four functions returns the address of the keys, values, key scales or value scales in one KV head's
 * part of a page, for the tokens from `first` on. For keys, `first` is a multiple of 8.
 */
export function keysAt(kvType: i32, part: usize, first: i32, headLength: i32): usize {
  return part + <usize>(first >> 3) * keyEightBytes(kvType, headLength);
}

export function valuesAt(kvType: i32, part: usize, first: i32, headLength: i32, blockTokens: i32): usize {
  return part + <usize>(keyBytes(kvType, headLength, blockTokens) + first * 8 * valueBytes(kvType));
}

export function keyScalesAt(kvType: i32, part: usize, first: i32, headLength: i32, blockTokens: i32): usize {
  const values = keyBytes(kvType, headLength, blockTokens) + allValueBytes(kvType, headLength, blockTokens);
  return part + <usize>(values + first * 4);
}

export function valueScalesAt(kvType: i32, part: usize, first: i32, headLength: i32, blockTokens: i32): usize {
  const keyScales = keyScalesAt(kvType, part, first, headLength, blockTokens);
  return keyScales + <usize>groupCount(headLength) * scaleStride(blockTokens);
}

/** Returns the size in bytes of the keys of a group of 8 tokens. */
export function keyEightBytes(kvType: i32, headLength: i32): usize {
  return <usize>(headLength * 8 * valueBytes(kvType));
}

/** Returns the size in bytes of the values of `tokens` tokens in a group of 8 dimensions. */
export function valueEightBytes(kvType: i32, tokens: i32): usize {
  return <usize>(tokens * 8 * valueBytes(kvType));
}

/** Returns the number of bytes from the scales of one group of 32 dimensions to the scales of the next group. */
export function scaleStride(blockTokens: i32): usize {
  return <usize>(wholeEights(blockTokens) << 2);
}

/** Converts the keys of `count` tokens (rounded up to a multiple of 8) to floats in the same order. */
export function unpackKeys(
  kvType: i32, from: usize, scales: usize, scaleStep: usize, count: i32, headLength: i32, to: usize,
): void {
  if (kvType != Q8_0) return unpackFloats(kvType, from, <usize>(wholeEights(count) * headLength), to);
  for (let first = 0; first < count; first += 8) {
    for (let d = 0; d < headLength; d++) {
      const scale = scales + <usize>(d >> 5) * scaleStep;
      v128.store(to, f32x4.mul(bytesAt(from, 0), v128.load(scale)));
      v128.store(to, f32x4.mul(bytesAt(from, 1), v128.load(scale, 16)), 16);
      from += 8;
      to += 32;
    }
    scales += 32;
  }
}

/**
 * Converts the values of `count` tokens to floats in the same order. Each group of 8 dimensions at `to` has space for
 * `room` tokens.
 */
export function unpackValues(
  kvType: i32, from: usize, eightBytes: usize, scales: usize, scaleStep: usize, count: i32, headLength: i32, to: usize,
  room: i32,
): void {
  for (let d = 0; d < headLength; d += 8) {
    if (kvType == Q8_0) {
      const scale = scales + <usize>(d >> 5) * scaleStep;
      for (let token: usize = 0; token < <usize>count; token++) {
        const factor = v128.load32_splat(scale + (token << 2));
        v128.store(to + (token << 5), f32x4.mul(bytesAt(from + (token << 3), 0), factor));
        v128.store(to + (token << 5), f32x4.mul(bytesAt(from + (token << 3), 1), factor), 16);
      }
    } else unpackFloats(kvType, from, <usize>count << 3, to);
    from += eightBytes;
    to += <usize>room << 5;
  }
}

/** Converts `count` values without scales to floats. `count` is a multiple of 8. */
// @ts-expect-error: decorator
@inline
function unpackFloats(kvType: i32, from: usize, count: usize, to: usize): void {
  if (kvType == F32) {
    for (let i: usize = 0; i < count << 2; i += 32) {
      v128.store(to + i, v128.load(from + i));
      v128.store(to + i, v128.load(from + i, 16), 16);
    }
  } else if (kvType == BF16) {
    for (let i: usize = 0; i < count << 1; i += 16) {
      v128.store(to + (i << 1), bfloatAt(from + i));
      v128.store(to + (i << 1), bfloatAt(from + i + 8), 16);
    }
  } else {
    for (let i: usize = 0; i < count << 1; i += 16) {
      v128.store(to + (i << 1), float16At(from + i));
      v128.store(to + (i << 1), float16At(from + i + 8), 16);
    }
  }
}

/** Returns the four float16 numbers at `at` as floats. */
// @ts-expect-error: decorator
@inline
export function float16At(at: usize): v128 {
  // Moves sign, exponent and fraction to their positions in a float. The factor 2^112 then changes the exponent's bias
  // from 15 to 127.
  const bits = v128.and(i32x4.shl(v128.load16x4_s(at), 13), i32x4.splat(<i32>0x8fffe000));
  return f32x4.mul(bits, f32x4.splat(5.192296858534828e33));
}

/** Returns the four bfloat16 numbers at `at` as floats. */
// @ts-expect-error: decorator
@inline
export function bfloatAt(at: usize): v128 {
  return i32x4.shl(v128.load16x4_u(at), 16);
}

/**
 * Returns four of the eight bytes at `at` as floats: the first four if `half` is 0, the last four if it is 1. The scale
 * is not applied.
 */
// @ts-expect-error: decorator
@inline
export function bytesAt(at: usize, half: usize): v128 {
  const x = v128.load8x8_s(at);
  return f32x4.convert_i32x4_s(half == 0 ? i32x4.extend_low_i16x8_s(x) : i32x4.extend_high_i16x8_s(x));
}
