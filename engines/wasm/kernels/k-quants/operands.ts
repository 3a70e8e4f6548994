// Vector operations in the inner loops of k-quant products: unpacking quants, adding products, applying integer scales,
// finishing a block. Everything is inlined with constant `type` and `products` (the method), so the compiler removes
// unused branches.
import { multiplyAdd } from "../arithmetic";
import { iq4Levels, lookUp } from "../block-quants/codebook";
import { hidden, opaqueVector } from "../block-quants/operands";
import { IQ4_XS, Q2_K, Q3_K, Q5_K, Q6_K } from "../types";
import { biasBits, hasBits, hasHalves, hasMinimums, NARROW, PAIRS, runsThrough, WIDE } from "./layout";

/**
 * Returns the mask that extracts an operand (16 quants, one per byte) from a packed vector. For 6-bit quants, it is the
 * inverse: the mask of the upper two bits, which belong to a different operand.
 */
// @ts-expect-error: decorator
@inline
export function operandMask(type: i32): i32 {
  if (type == Q6_K) return 0xc0c0c0c0;
  return type == Q2_K || type == Q3_K ? 0x03030303 : 0x0f0f0f0f;
}

/**
 * Returns the parameter `extra` of operand(). For quants of 5 and 3 bits, it is the mask of the highest bit. For
 * IQ4_XS, whose quants are indices into a table of 16 values (levels), it is this table.
 */
// @ts-expect-error: decorator
@inline
export function operandExtra(type: i32, products: i32): v128 {
  if (type != IQ4_XS) return i32x4.splat(type == Q5_K ? 0x10101010 : 0x04040404);
  // The method WIDE needs unsigned operands, so 128 is added to the levels.
  return v128.xor(iq4Levels(), i32x4.splat(products == WIDE ? 0x80808080 : 0));
}

/**
 * keptMask() and keptExtra() return the parameters `mask` and `extra` of operand(). They hide from V8 that the values
 * are constants; otherwise V8 may recompute them at each use instead of keeping them in registers. `any` is the address
 * of any vector, whose value has no effect.
 */
// @ts-expect-error: decorator
@inline
export function keptMask(type: i32, products: i32, any: usize): v128 {
  const mask = i32x4.splat(operandMask(type));
  return hasBits(type) ? hidden(mask, any) : opaqueVector(products, mask, any);
}

// @ts-expect-error: decorator
@inline
export function keptExtra(type: i32, products: i32, any: usize): v128 {
  const extra = operandExtra(type, products);
  return hasBits(type) ? hidden(extra, any) : opaqueVector(products, extra, any);
}

/**
 * Parameter `factor` of bits() for step 0, the first of a block's two steps: 16 in each 16-bit lane, which shifts left
 * by 4 bits. For step 1, the parameter is 1 in each lane.
 */
export const FIRST_STEP: i32 = 0x00100010;

/**
 * Returns the highest bits of the four operands of a step (half of a block): in each byte, bit 4 + i belongs to operand
 * i. The other bits are undefined.
 */
// @ts-expect-error: decorator
@inline
export function bits(type: i32, at: usize, factor: v128): v128 {
  return type == Q5_K || type == Q3_K ? i16x8.mul(v128.load(at), factor) : factor;
}

/**
 * Returns operand number `index` (0 to 3) of a step, which is half of a block. v0 to v2 are the step's packed vectors;
 * types with fewer vectors ignore v1 or v2.
 */
// @ts-expect-error: decorator
@inline
export function operand(
  type: i32,
  index: i32,
  v0: v128,
  v1: v128,
  v2: v128,
  high: v128,
  mask: v128,
  extra: v128,
): v128 {
  if (type == Q6_K) {
    if (index < 3) return v128.andnot(index == 0 ? v0 : index == 1 ? v1 : v2, mask);
    const lower = v128.or(v128.and(v1, mask), i16x8.shr_u(v128.and(v2, mask), 2));
    return i16x8.shr_u(v128.or(v128.and(v0, mask), i16x8.shr_u(lower, 2)), 2);
  }
  if (type == Q2_K || type == Q3_K) {
    const low = v128.and(index == 0 ? v0 : i16x8.shr_u(v0, index << 1), mask);
    return type == Q2_K ? low : v128.or(low, v128.and(i16x8.shr_u(high, 2 + index), extra));
  }
  const v = index < 2 ? v0 : v1;
  const low = v128.and(index & 1 ? i16x8.shr_u(v, 4) : v, mask);
  if (type == Q5_K) return v128.or(low, v128.and(index == 0 ? high : i16x8.shr_u(high, index), extra));
  return type == IQ4_XS ? lookUp(extra, low) : low;
}

/**
 * Returns the vector with the highest bits of a block of 5-bit quants; 0 for other types. Bits 0 and 1 of each byte
 * belong to the block's first packed vector.
 */
// @ts-expect-error: decorator
@inline
export function pairBits(type: i32, at: usize): v128 {
  return type == Q5_K ? v128.load(at) : i32x4.splat(0);
}

/** Shifts the highest bits of 5-bit quants, so that bits 0 and 1 of each byte belong to the next packed vector. */
// @ts-expect-error: decorator
@inline
export function nextPair(type: i32, single: v128): v128 {
  return type == Q5_K ? i32x4.shr_u(single, 2) : single;
}

/**
 * Returns the operand (16 quants, one per byte) in the low nibbles of a packed vector. For 5-bit quants, `single` has
 * the highest bits.
 */
// @ts-expect-error: decorator
@inline
export function pairLow(type: i32, vector: v128, single: v128, mask: v128, extra: v128): v128 {
  const low = v128.and(vector, mask);
  if (type == Q5_K) return v128.or(low, v128.and(i32x4.shl(single, 4), extra));
  return type == IQ4_XS ? lookUp(extra, low) : low;
}

/**
 * Returns the operand (16 quants, one per byte) in the high nibbles of a packed vector. For 5-bit quants, `single` has
 * the highest bits.
 */
// @ts-expect-error: decorator
@inline
export function pairHigh(type: i32, vector: v128, single: v128, mask: v128, extra: v128): v128 {
  const high = v128.and(i16x8.shr_u(vector, 4), mask);
  if (type == Q5_K) return v128.or(high, v128.and(i32x4.shl(single, 3), extra));
  return type == IQ4_XS ? lookUp(extra, high) : high;
}

/** Returns `sums` plus the products of an operand and its activation values, which are at `at`. */
// @ts-expect-error: decorator
@inline
export function addProducts(type: i32, products: i32, values: v128, at: usize, quants: v128, sums: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (products == WIDE) return i32x4.relaxed_dot_i8x16_i7x16_add_s(values, quants, sums);
    if (products == NARROW) return i16x8.add(sums, i16x8.relaxed_dot_i8x16_i7x16_s(values, quants));
  }
  const signed = type == IQ4_XS;
  const even = signed ? i16x8.shr_s(i16x8.shl(quants, 8), 8) : v128.and(quants, i32x4.splat(0x00ff00ff));
  const odd = signed ? i16x8.shr_s(quants, 8) : i16x8.shr_u(quants, 8);
  sums = i32x4.add(sums, i32x4.dot_i16x8_s(values, even));
  return i32x4.add(sums, i32x4.dot_i16x8_s(v128.load32_splat(at, 4), odd));
}

/** Returns the number of bytes from one operand's activation values to those of the next operand. */
// @ts-expect-error: decorator
@inline
export function operandBytes(products: i32): usize {
  return products == PAIRS ? 8 : 4;
}

/**
 * Returns the initial value of the sums of a step (half of a block). It cancels the bias of the quants: it is the bias
 * times the negative sum of the column's activations, which is at `sums`.
 */
// @ts-expect-error: decorator
@inline
export function stepStart(type: i32, products: i32, sums: usize): v128 {
  const shift = biasBits(type, products);
  if (shift == 0) return i32x4.splat(0);
  const negative = v128.load32_splat(sums);
  return products == NARROW ? i16x8.shl(negative, shift) : i32x4.shl(negative, shift);
}

/**
 * Returns the initial value of a block's sums: the initial values of both steps (halves of the block), added. The
 * activation sums of the two steps are `word` bytes apart. Returns 0 if the steps are summed separately.
 */
// @ts-expect-error: decorator
@inline
export function blockStart(type: i32, products: i32, sums: usize, word: usize): v128 {
  if (!runsThrough(type, products) || biasBits(type, products) == 0) return i32x4.splat(0);
  return i32x4.add(stepStart(type, products, sums), stepStart(type, products, sums + word));
}

/**
 * Returns the initial value of integer sums. This is blockStart() if both steps (halves) of a block are summed before
 * the scale is applied, else stepStart().
 */
// @ts-expect-error: decorator
@inline
export function sumsStart(type: i32, products: i32, sums: usize, word: usize): v128 {
  return runsThrough(type, products) ? blockStart(type, products, sums, word) : stepStart(type, products, sums);
}

/**
 * Returns the number of bytes from the scales of step 0 to those of step 1 (the two steps of a block); 0 if both steps
 * read the same scales.
 */
// @ts-expect-error: decorator
@inline
export function stepScaleBytes(type: i32, products: i32): usize {
  return hasHalves(type) && products != NARROW ? 4 : 0;
}

// @ts-expect-error: decorator
@inline
function fourBytes(signed: bool, at: usize): v128 {
  const bytes = v128.load32_zero(at);
  return signed
    ? i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(bytes))
    : i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes));
}

/**
 * Returns the scales for the sums of a step (half of a block), one per row. These are the scales of the half or, if the
 * type has none, of the whole block. They are floats. For the method NARROW, each 32-bit lane has two 16-bit integers
 * instead, one for each of the lane's two 16-bit sums.
 */
// @ts-expect-error: decorator
@inline
export function stepScale(type: i32, products: i32, scales: usize): v128 {
  if (products == NARROW) {
    const bytes = type == Q2_K || !hasHalves(type) ? v128.load8x8_u(scales) : v128.load8x8_s(scales);
    if (type == Q2_K) return v128.and(bytes, i32x4.splat(0x000f000f));
    return hasHalves(type) ? bytes : v128.or(i32x4.shl(bytes, 16), v128.and(bytes, i32x4.splat(0x0000ffff)));
  }
  if (hasMinimums(type) && !hasHalves(type)) {
    return f32x4.convert_i32x4_s(v128.and(v128.load8x8_u(scales), i32x4.splat(0x0000ffff)));
  }
  if (type == Q2_K) return f32x4.convert_i32x4_s(v128.and(fourBytes(false, scales), i32x4.splat(15)));
  return f32x4.convert_i32x4_s(fourBytes(true, scales));
}

/**
 * Adds a step's sums (half of a block), times their scales, to the block's `total`. Computes in integers for the method
 * NARROW, otherwise in floats. The floats are exact, because all values are integers below 2^24.
 */
// @ts-expect-error: decorator
@inline
export function addStep(products: i32, sums: v128, scale: v128, total: v128): v128 {
  if (products == NARROW) return i32x4.add(total, i32x4.dot_i16x8_s(sums, scale));
  return multiplyAdd(f32x4.convert_i32x4_s(sums), scale, total);
}

/** Converts the result of addStep() to floats. */
// @ts-expect-error: decorator
@inline
export function inFloats(products: i32, total: v128): v128 {
  return products == NARROW ? f32x4.convert_i32x4_s(total) : total;
}

/**
 * Returns `total` (one sum per row) plus a block's mins times the negative sums of one column's activations. In Q2_K,
 * each half of the block has a min, and the sums of the block's two steps are at `sums` and `sums + word`. Other types
 * use the float sum of the whole block, at `sums - word`.
 */
// @ts-expect-error: decorator
@inline
export function addMinimums(
  type: i32, products: i32, scales: usize, sums: usize, word: usize, scale: v128, total: v128,
): v128 {
  if (type != Q2_K) {
    const minimums = f32x4.convert_i32x4_s(i32x4.shr_u(v128.load8x8_u(scales), 16));
    return multiplyAdd(minimums, v128.load32_splat(sums - word), total);
  }
  const first = v128.load32_splat(sums), second = v128.load32_splat(sums + word);
  let product: v128;
  if (products == NARROW) {
    product = i32x4.dot_i16x8_s(i16x8.shr_u(v128.load8x8_u(scales), 4), i16x8.add(first, second));
  } else {
    const a = i32x4.mul(i32x4.shr_u(fourBytes(false, scales), 4), first);
    product = i32x4.add(a, i32x4.mul(i32x4.shr_u(fourBytes(false, scales + 4), 4), second));
  }
  return multiplyAdd(f32x4.convert_i32x4_s(product), scale, total);
}
