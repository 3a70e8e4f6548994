// Encoder of MXFP4: blocks of 32 values with a power of two as scale. The levels and their order are those of the codebook in
// engines/wasm/kernels/block-quants/codebook.ts.
import { sumOfLanes } from "../../../../wasm/kernels/arithmetic";
import { fp4Levels, lookUp } from "../../../../wasm/kernels/block-quants/codebook";
import { countBounds } from "../codes";
import { storeFloats } from "../levels";
import { largestOf } from "../search/tile";
import { BLOCK } from "./format";

/** Midpoints between adjacent magnitudes of MXFP4. All are doubled, like the levels of the codebook. */
const MIDPOINTS: usize = memory.data<f32>([0.5, 1.5, 2.5, 3.5, 5, 7, 10]);
const BOUNDS: i32 = 7;
/** Largest magnitude of FP4, in units of the smallest one above zero: 6 / 0.5. Larger values are clipped to it. */
const LARGEST_LEVEL: f32 = 12;
/** A block of MXFP4 whose values all have smaller magnitudes is encoded as zeros. */
const NEGLIGIBLE: f32 = 1e-30;
/** Decoded values of a block, for one of the scales that are tried. */
const DECODED: usize = memory.data(128, 16);

/**
 * Encodes a block of MXFP4: 32 values with one power of two as scale. `importance` is 0, or the address of the
 * columns' weights. If the largest value would be clipped, the next power of two is tried too.
 */
export function encodeFp4(x: usize, importance: usize, out: usize): void {
  const peak = largestOf(x, BLOCK);
  if (peak < NEGLIGIBLE) {
    memory.fill(out, 0, 17);
    return;
  }
  // Exponent of the scale at which the largest value is 4 to 8 times the scale: two less than the exponent of the largest value.
  let exponent = (reinterpret<i32>(peak) >> 23) - 2;
  const unit = unitOf(exponent);
  // Both errors are in multiples of `unit`: they can be compared, and their squares neither overflow nor vanish.
  if (peak / unit > LARGEST_LEVEL && errorOf(x, importance, unit * 2, 2) < errorOf(x, importance, unit, 1)) exponent++;
  const inverse = <f32>1 / unitOf(exponent);
  store<u8>(out, <u8>exponent);
  v128.store(out, v128.or(codesOf(x, inverse), i8x16.shl(codesOf(x + 64, inverse), 4)), 1);
}

/** Returns the value of level 1, which is half of the scale 2^(exponent - 127), because the levels of the codebook are doubled. */
// @ts-expect-error: decorator
@inline
function unitOf(exponent: i32): f32 {
  return reinterpret<f32>(exponent - 1 << 23);
}

function codesOf(at: usize, inverse: f32): v128 {
  const factors = f32x4.splat(inverse);
  const a = v128.load(at), b = v128.load(at, 16), c = v128.load(at, 32), d = v128.load(at, 48);
  const sizes = countBounds(
    MIDPOINTS, BOUNDS,
    f32x4.mul(f32x4.abs(a), factors), f32x4.mul(f32x4.abs(b), factors),
    f32x4.mul(f32x4.abs(c), factors), f32x4.mul(f32x4.abs(d), factors),
  );
  // Saturating narrowing keeps the signs.
  const signs = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d));
  const isNegative = v128.and(i8x16.lt_s(signs, i8x16.splat(0)), i8x16.ne(sizes, i8x16.splat(0)));
  return v128.or(sizes, v128.and(isNegative, i8x16.splat(8)));
}

/** Returns the weighted squared error of a block with a given unit. Errors are in multiples of `unit` / `factor`. */
function errorOf(x: usize, importance: usize, unit: f32, factor: f32): f32 {
  const inverse = <f32>1 / unit;
  storeFloats(lookUp(fp4Levels(), codesOf(x, inverse)), unit, DECODED);
  storeFloats(lookUp(fp4Levels(), codesOf(x + 64, inverse)), unit, DECODED + 64);
  let sum = f32x4.splat(0);
  for (let at: usize = 0; at < 128; at += 16) {
    const error = f32x4.mul(f32x4.sub(v128.load(x + at), v128.load(DECODED + at)), f32x4.splat(inverse * factor));
    const square = f32x4.mul(error, error);
    sum = f32x4.add(sum, importance ? f32x4.mul(square, v128.load(importance + at)) : square);
  }
  return sumOfLanes(sum);
}
