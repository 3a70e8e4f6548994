// Conversions between F32, F16 and BF16. Results are rounded to the nearest value, ties to even.
import { HALF_FACTOR, HALF_MASK } from "../../../wasm/kernels/block-quants/layout";
import { BF16, F16, F32 } from "../../../wasm/kernels/types";

/** Bits of 2^-14, the smallest F16 that is not subnormal. */
const SMALLEST_NORMAL: i32 = 0x38800000;
/**
 * Number subtracted from the bits of an F32 to convert it to F16: the difference of the exponent biases (112 << 23), minus 0xfff. The
 * subtraction thus adds 0xfff for rounding, which is half a unit of the last place of the F16, minus 1.
 */
const REBIAS: i32 = 0x37fff001;
const LARGEST_HALF: i32 = 0x7bff;
/** Exponent bits of an infinite or NaN F16 after its bits were shifted left by 13 and masked with HALF_MASK. */
const FULL_EXPONENT: i32 = 0x0f800000;

/** Converts four finite floats to F16, one per 32-bit lane. Numbers beyond the largest F16 become the largest. */
// @ts-expect-error: decorator
@inline
export function fourHalves(x: v128): v128 {
  const sign = v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000));
  const size = v128.and(x, i32x4.splat(0x7fffffff));
  const odd = v128.and(i32x4.shr_u(size, 13), i32x4.splat(1));
  const normal = i32x4.shr_u(i32x4.sub(i32x4.add(size, odd), i32x4.splat(REBIAS)), 13);
  // The addition of 1/2 rounds a number below 2^-14 to a multiple of 2^-24, which the low bits of the sum then count.
  const small = i32x4.sub(f32x4.add(size, f32x4.splat(0.5)), i32x4.splat(0x3f000000));
  const bits = v128.bitselect(small, normal, i32x4.lt_s(size, i32x4.splat(SMALLEST_NORMAL)));
  return v128.or(i32x4.min_s(bits, i32x4.splat(LARGEST_HALF)), sign);
}

/** Converts four F16, sign-extended to 32 bits, to floats. */
// @ts-expect-error: decorator
@inline
export function fourFloats(halves: v128): v128 {
  const shifted = v128.and(i32x4.shl(halves, 13), i32x4.splat(HALF_MASK));
  const full = i32x4.splat(FULL_EXPONENT);
  const notFinite = i32x4.eq(v128.and(shifted, full), full);
  return v128.or(f32x4.mul(shifted, i32x4.splat(HALF_FACTOR)), v128.and(notFinite, i32x4.splat(0x7f800000)));
}

/** Converts one float to F16, like fourHalves(). */
export function half(x: f32): u16 {
  return <u16>i32x4.extract_lane(fourHalves(f32x4.splat(x)), 0);
}

/** Converts one F16 to a float. */
export function float(bits: u16): f32 {
  return f32x4.extract_lane(fourFloats(i32x4.splat(<i32><i16>bits)), 0);
}

/** Converts `count` floats to `type`: F32, F16 or BF16. Reads and writes up to 28 bytes past the end. */
export function encodeFloats(type: i32, from: usize, count: i32, to: usize): void {
  if (type == F32) memory.copy(to, from, <usize>count << 2);
  else if (type == F16) encodeSixteenBits(F16, from, count, to);
  else encodeSixteenBits(BF16, from, count, to);
}

// @ts-expect-error: decorator
@inline
function encodeSixteenBits(type: i32, from: usize, count: i32, to: usize): void {
  for (const end = from + (<usize>count << 2); from < end; from += 32, to += 16) {
    const low = v128.load(from), high = v128.load(from, 16);
    v128.store(
      to,
      type == F16
        ? i16x8.narrow_i32x4_u(fourHalves(low), fourHalves(high))
        : i16x8.narrow_i32x4_u(fourBrains(low), fourBrains(high)),
    );
  }
}

/** Converts four finite floats to BF16, one per 32-bit lane. */
// @ts-expect-error: decorator
@inline
function fourBrains(x: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 16), i32x4.splat(1));
  return i32x4.shr_u(i32x4.add(i32x4.add(x, odd), i32x4.splat(0x7fff)), 16);
}

/** Converts `count` numbers of `type` to floats. Reads and writes up to 28 bytes past the end. */
export function decodeFloats(type: i32, from: usize, count: i32, to: usize): void {
  if (type == F32) {
    memory.copy(to, from, <usize>count << 2);
  } else {
    for (const end = to + (<usize>count << 2); to < end; from += 8, to += 16) {
      const bits = v128.load16x4_s(from);
      v128.store(to, type == F16 ? fourFloats(bits) : i32x4.shl(bits, 16));
    }
  }
}
