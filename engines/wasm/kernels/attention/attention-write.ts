// Write kernel of the KV cache: stores one token's keys and values in a page, in the number type of the KV cache.
import { largestLane } from "../arithmetic";
import { BF16, F32, Q8_0 } from "../types";
import {
  headBytes, keyEightBytes, keyScalesAt, scaleStride, valueBytes, valueEightBytes, valueScalesAt, valuesAt,
} from "./attention-pages";

export function kvWrite(
  kvType: i32, page: usize, index: i32, blockTokens: i32, key: usize, value: usize, kvHeads: i32, headLength: i32,
): void {
  const bytes = <usize>headBytes(kvType, headLength, blockTokens);
  const inEight = <usize>((index & 7) * valueBytes(kvType));
  const keyAt = <usize>(index >> 3) * keyEightBytes(kvType, headLength) + inEight;
  for (let head = 0; head < kvHeads; head++) {
    const keys = page + keyAt;
    const values = valuesAt(kvType, page, index, headLength, blockTokens);
    const nextEight = valueEightBytes(kvType, blockTokens);
    if (kvType == F32) {
      writeFloats(key, value, headLength, keys, values, nextEight);
    } else if (kvType == Q8_0) {
      const step = scaleStride(blockTokens);
      writeKeyBytes(key, headLength, keys, keyScalesAt(kvType, page, index, headLength, blockTokens), step);
      const scales = valueScalesAt(kvType, page, index, headLength, blockTokens);
      writeValueBytes(value, headLength, values, nextEight, scales, step);
    } else {
      writeHalves(kvType, key, value, headLength, keys, values, nextEight);
    }
    key += <usize>headLength << 2;
    value += <usize>headLength << 2;
    page += bytes;
  }
}

function writeFloats(key: usize, value: usize, headLength: i32, keys: usize, values: usize, nextEight: usize): void {
  for (let i: usize = 0; i < <usize>headLength; i++) store<f32>(keys + (i << 5), load<f32>(key + (i << 2)));
  for (let i: usize = 0; i < <usize>headLength; i += 4) {
    v128.store(values + (i >> 3) * nextEight + ((i & 4) << 2), v128.load(value + (i << 2)));
  }
}

function writeHalves(
  kvType: i32, key: usize, value: usize, headLength: i32, keys: usize, values: usize, nextEight: usize,
): void {
  for (let i: usize = 0; i < <usize>headLength; i += 4) {
    const k = toHalves(kvType, v128.load(key + (i << 2)));
    v128.store16_lane(keys + (i << 4), k, 0);
    v128.store16_lane(keys + (i << 4), k, 2, 16);
    v128.store16_lane(keys + (i << 4), k, 4, 32);
    v128.store16_lane(keys + (i << 4), k, 6, 48);
    const v = toHalves(kvType, v128.load(value + (i << 2)));
    const packed = i16x8.shuffle(v, v, 0, 2, 4, 6, 0, 2, 4, 6);
    v128.store64_lane(values + (i >> 3) * nextEight + ((i & 4) << 1), packed, 0);
  }
}

/** Converts four floats to 16-bit numbers, rounded to nearest even. Each result is in the lower half of its lane. */
// @ts-expect-error: decorator
@inline
function toHalves(kvType: i32, x: v128): v128 {
  return kvType == BF16 ? toBfloat(x) : toFloat16(x);
}

// @ts-expect-error: decorator
@inline
function toBfloat(x: v128): v128 {
  const even = v128.and(i32x4.shr_u(x, 16), i32x4.splat(1));
  return i32x4.shr_u(i32x4.add(x, i32x4.add(even, i32x4.splat(0x7fff))), 16);
}

/** Limits values beyond the largest float16 to the largest float16, because an infinity would make a whole row NaN. */
// @ts-expect-error: decorator
@inline
function toFloat16(x: v128): v128 {
  const size = f32x4.pmin(f32x4.abs(x), f32x4.splat(65504));
  const odd = v128.and(i32x4.shr_u(size, 13), i32x4.splat(1));
  // Changes the exponent's bias from 127 to 15.
  const normal = i32x4.shr_u(i32x4.add(size, i32x4.add(odd, i32x4.splat(0xfff - (112 << 23)))), 13);
  // Adding 0.5 rounds a number to a multiple of 2^-24, the spacing of subnormal float16 numbers.
  const subnormal = i32x4.sub(f32x4.add(size, f32x4.splat(0.5)), f32x4.splat(0.5));
  const isNormal = f32x4.ge(size, f32x4.splat(6.103515625e-5));
  const sign = v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000));
  return v128.or(v128.bitselect(normal, subnormal, isNormal), sign);
}

function writeKeyBytes(key: usize, headLength: i32, keys: usize, scales: usize, scaleStep: usize): void {
  for (let i = 0; i < headLength; i += 32) {
    const count = min(32, headLength - i);
    const inverse = writeScale(key, count, scales);
    for (let d = 0; d < count; d += 4) {
      const bytes = toBytes(key, inverse);
      v128.store8_lane(keys, bytes, 0);
      v128.store8_lane(keys, bytes, 4, 8);
      v128.store8_lane(keys, bytes, 8, 16);
      v128.store8_lane(keys, bytes, 12, 24);
      key += 16;
      keys += 32;
    }
    scales += scaleStep;
  }
}

function writeValueBytes(
  value: usize, headLength: i32, values: usize, nextEight: usize, scales: usize, scaleStep: usize,
): void {
  for (let i = 0; i < headLength; i += 32) {
    const count = min(32, headLength - i);
    const inverse = writeScale(value, count, scales);
    for (let d = 0; d < count; d += 4) {
      const bytes = toBytes(value, inverse);
      const packed = i8x16.shuffle(bytes, bytes, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
      v128.store32_lane(values + <usize>(d & 4), packed, 0);
      value += 16;
      if (d & 4) values += nextEight;
    }
    scales += scaleStep;
  }
}

/** Stores the Q8_0 scale of `count` floats. Returns the factor by which the floats are multiplied to quantise them. */
function writeScale(from: usize, count: i32, scale: usize): v128 {
  let largest = f32x4.splat(0);
  for (let i: usize = 0; i < <usize>count << 2; i += 16) largest = f32x4.pmax(largest, f32x4.abs(v128.load(from + i)));
  const peak = f32x4.extract_lane(largestLane(largest), 0);
  store<f32>(scale, peak / 127);
  return f32x4.splat(peak > 0 ? 127 / peak : 0);
}

/** Quantises four floats to signed bytes. Each result is the lowest byte of its lane. */
// @ts-expect-error: decorator
@inline
function toBytes(from: usize, inverse: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(from), inverse)));
}
