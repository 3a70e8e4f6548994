// Row reader: unpacks one row of a matrix to floats, with exactly the values of the file. Used to look up token
// embeddings. layout.ts defines the format.

import { IQ4_NL, MXFP4, Q8_0 } from "../types";
import { fp4Levels, iq4Levels, lookUp } from "./codebook";
import {
  BLOCK,
  biasOf,
  fifthBytes,
  flippedIn,
  HALF_FACTOR,
  HALF_MASK,
  hasFifthBits,
  hasMinimums,
  MINIMUMS_AT,
  quantBytes,
  ROWS,
  scaleBytes,
  scalesBytes,
} from "./layout";

export function readRow(type: i32, matrix: usize, row: i32, rows: i32, k: i32, out: usize): void {
  const blocks = k / BLOCK;
  const bytes = quantBytes(type), fifths = fifthBytes(type);
  const group = row / ROWS, lane = row % ROWS;
  let quants = matrix + <usize>group * blocks * ROWS * bytes + (lane << 2);
  let scales = matrix + <usize>rows * blocks * bytes + <usize>group * blocks * scalesBytes(type) + lane * scaleBytes(type);
  const flip = i32x4.splat(flippedIn(type));
  for (let b = 0; b < blocks; b++) {
    const scale = f32x4.splat(type == MXFP4 ? halfPower(load<u8>(scales)) : half(load<u16>(scales)));
    const least = f32x4.splat(hasMinimums(type) ? half(load<u16>(scales + MINIMUMS_AT)) : 0);
    let bits = hasFifthBits(type) ? v128.load32_zero(quants) : i32x4.splat(0);
    for (let j = fifths; j < bytes; j += 4) {
      const stored = v128.load32_zero(quants + j * ROWS);
      if (type == Q8_0) {
        storeFour(type, v128.xor(stored, flip), scale, least, out + (j << 2));
      } else {
        const at = out + (j - fifths << 2), one = i8x16.splat(1);
        const low = v128.or(v128.and(stored, i8x16.splat(15)), i8x16.shl(v128.and(bits, one), 4));
        const high = v128.or(i8x16.shr_u(stored, 4), i8x16.shl(v128.and(i8x16.shr_u(bits, 4), one), 4));
        storeFour(type, levels(type, low), scale, least, at);
        storeFour(type, levels(type, high), scale, least, at + 64);
        bits = i8x16.shr_u(bits, 1);
      }
    }
    out += BLOCK << 2;
    quants += ROWS * bytes;
    scales += scalesBytes(type);
  }
}

/** Returns the levels of quants of up to five bits. */
// @ts-expect-error: decorator
@inline
function levels(type: i32, numbers: v128): v128 {
  if (type == IQ4_NL) return lookUp(iq4Levels(), numbers);
  if (type == MXFP4) return lookUp(fp4Levels(), numbers);
  return hasMinimums(type) ? numbers : i8x16.sub(numbers, i8x16.splat(<i8>biasOf(type)));
}

/** Converts four signed bytes to floats, applies scale and min, and stores them. */
// @ts-expect-error: decorator
@inline
function storeFour(type: i32, bytes: v128, scale: v128, least: v128, out: usize): void {
  const four = i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(bytes));
  const values = f32x4.mul(f32x4.convert_i32x4_s(four), scale);
  v128.store(out, hasMinimums(type) ? f32x4.add(values, least) : values);
}

/** Returns 2^(exponent - 128). For exponents 0 and 1, the result is subnormal. */
// @ts-expect-error: decorator
@inline
function halfPower(exponent: u32): f32 {
  return reinterpret<f32>(exponent < 2 ? 0x00200000 << exponent : exponent - 1 << 23);
}

// @ts-expect-error: decorator
@inline
function half(bits: u16): f32 {
  const shifted = (<u32>(<i32><i16>bits) << 13) & HALF_MASK;
  return reinterpret<f32>(shifted) * reinterpret<f32>(HALF_FACTOR);
}
