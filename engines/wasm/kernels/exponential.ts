// Vector functions e^x and tanh, for softmax, activations and soft caps. Inlined into the kernels that use them.
import { multiplyAdd } from "./arithmetic";

const LOG2_E: f32 = 1.4426950408889634;
/** ln 2 in two parts. The product of the first part with an integer below 2^14 is exact. */
const LN2_HIGH: f32 = 0.693145751953125;
const LN2_LOW: f32 = 1.428606765330187e-6;
/** 1.5 * 2^23. A small float plus this constant is rounded to an integer, which is in the lowest bits of the sum. */
const ROUNDING: f32 = 12582912;
/** Limits of x. For x outside these limits, e^x is not a normal number. */
const LEAST: f32 = -87.3;
const MOST: f32 = 88.3;

// For |r| <= ln(2) / 2: e^r = 1 + r + r^2 (C2 + C3 r + C4 r^2 + C5 r^3), a minimax approximation with relative error
// 1.1e-7.
const C2: f32 = 0.49999231512944253;
const C3: f32 = 0.1666711461975796;
const C4: f32 = 0.04189015497578748;
const C5: f32 = 0.008312522822283279;

/** Returns e^x with relative error below 3e-7. x is limited to the range from -87.3 to 88.3. NaN stays NaN. */
// @ts-ignore: decorator
@inline
export function exponential(x: v128): v128 {
  const bounded = f32x4.pmin(f32x4.pmax(x, f32x4.splat(LEAST)), f32x4.splat(MOST));
  const rounded = multiplyAdd(bounded, f32x4.splat(LOG2_E), f32x4.splat(ROUNDING));
  const whole = f32x4.sub(rounded, f32x4.splat(ROUNDING));
  const high = multiplyAdd(whole, f32x4.splat(-LN2_HIGH), bounded);
  const r = multiplyAdd(whole, f32x4.splat(-LN2_LOW), high);
  const upper = multiplyAdd(f32x4.splat(C5), r, f32x4.splat(C4));
  const lower = multiplyAdd(f32x4.splat(C3), r, f32x4.splat(C2));
  const square = f32x4.mul(r, r);
  const tail = multiplyAdd(upper, square, lower);
  const power = multiplyAdd(tail, square, f32x4.add(r, f32x4.splat(1)));
  // Adds the integer part to the exponent bits, which multiplies by a power of two.
  return i32x4.add(power, i32x4.shl(rounded, 23));
}

/** Returns tanh x with absolute error below 3e-7. NaN stays NaN. */
// @ts-ignore: decorator
@inline
export function hyperbolicTangent(x: v128): v128 {
  const power = exponential(f32x4.add(x, x));
  return f32x4.sub(f32x4.splat(1), f32x4.div(f32x4.splat(2), f32x4.add(power, f32x4.splat(1))));
}
