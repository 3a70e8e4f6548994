// Vector operations in the inner loops of block-quant products: unpacking quants, adding products, finishing a block.
// Everything is inlined with constant `type` and `products` (the method), so the compiler removes unused branches.
import { multiplyAdd } from "../arithmetic";
import { IQ4_NL, MXFP4, Q8_0 } from "../types";
import { fp4Levels, iq4Levels, lookUp } from "./codebook";
import {
  biasOf,
  flippedBits,
  hasCodebook,
  hasFifthBits,
  hasMinimums,
  NARROW,
  offsetIsSum,
  PAIRS,
  stacksPairs,
  WIDE,
} from "./layout";

/**
 * Returns `sums` plus the products of quants (one row per 32-bit lane) and activation values (the same four in each
 * lane).
 */
// @ts-expect-error: decorator
@inline
export function add(products: i32, values: v128, quants: v128, sums: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (products == WIDE) return i32x4.relaxed_dot_i8x16_i7x16_add_s(values, quants, sums);
    if (products == NARROW) return i16x8.add(sums, i16x8.relaxed_dot_i8x16_i7x16_s(values, quants));
  }
  return i32x4.add(sums, i32x4.dot_i16x8_s(values, quants));
}

/**
 * Returns the number of operands in a vector of quants. Low and high nibbles are separate operands, except in Q8_0. For
 * PAIRS, even and odd bytes are also separate operands.
 */
// @ts-expect-error: decorator
@inline
export function parts(type: i32, products: i32): i32 {
  return (type == Q8_0 ? 1 : 2) * (products == PAIRS ? 2 : 1);
}

/**
 * Returns `constant`, computed so that V8 does not treat it as a constant. `any` is the address of any vector, whose
 * value has no effect. Since about version 12, V8 recomputes a constant at each use, with three or more instructions.
 * Older V8 versions keep constants in registers; there, this function costs a few percent of speed.
 */
// @ts-expect-error: decorator
@inline
export function hidden(constant: v128, any: usize): v128 {
  const vector = v128.load(any);
  return v128.or(constant, i32x4.ne(vector, vector));
}

/**
 * If the method is WIDE, which only new versions of V8 support, returns `constant` so that V8 does not treat it as a
 * constant (see hidden()). Otherwise, returns `constant` itself.
 */
// @ts-expect-error: decorator
@inline
export function opaqueVector(products: i32, constant: v128, any: usize): v128 {
  return products == WIDE ? hidden(constant, any) : constant;
}

/** Like opaqueVector(), for a vector with `bits` in all lanes. */
// @ts-expect-error: decorator
@inline
export function opaque(products: i32, bits: i32, any: usize): v128 {
  return opaqueVector(products, i32x4.splat(bits), any);
}

/** Returns the parameter `mask` of part(): the mask that extracts nibbles. */
// @ts-expect-error: decorator
@inline
export function partMask(type: i32, products: i32, any: usize): v128 {
  if (hasFifthBits(type) || hasCodebook(type)) return hidden(i32x4.splat(0x0f0f0f0f), any);
  return opaque(products, products == PAIRS ? 0x000f000f : 0x0f0f0f0f, any);
}

/**
 * Returns the parameter `aid` of part(): the mask of the fifth bit, or the table of operands for the codes of a
 * codebook.
 */
// @ts-expect-error: decorator
@inline
export function partAid(type: i32, products: i32, any: usize): v128 {
  if (hasFifthBits(type)) return hidden(i32x4.splat(0x10101010), any);
  if (type == MXFP4) return hidden(i8x16.add(fp4Levels(), i8x16.splat(<i8>biasOf(type))), any);
  if (type != IQ4_NL) return i32x4.splat(0);
  return hidden(products == WIDE ? i8x16.add(iq4Levels(), i8x16.splat(-128)) : iq4Levels(), any);
}

/** Returns the fifth bits of the block whose quants begin at `quants`, aligned for the block's first vector. */
// @ts-expect-error: decorator
@inline
export function fifths(type: i32, quants: usize): v128 {
  return hasFifthBits(type) ? v128.load(quants) : i32x4.splat(0);
}

/** Shifts the fifth bits so that they are aligned for the vector `vectors` vectors later in the block. */
// @ts-expect-error: decorator
@inline
export function nextFifths(type: i32, bits: v128, vectors: i32): v128 {
  return hasFifthBits(type) ? i32x4.shr_u(bits, vectors) : bits;
}

/** Returns operand number `index` of a vector of quants. `bits` has the fifth bits. */
// @ts-expect-error: decorator
@inline
export function part(type: i32, products: i32, index: i32, quants: v128, bits: v128, mask: v128, aid: v128): v128 {
  if (type == Q8_0) return index == 0 ? quants : i16x8.shr_s(quants, 8);
  if (stacksPairs(type, products)) {
    const bytes = nibbles(type, index >> 1, quants, bits, mask, aid);
    if (index & 1) return i16x8.shr_s(bytes, 8);
    return type == IQ4_NL ? v128.xor(bytes, i32x4.splat(flippedBits(products))) : bytes;
  }
  if (products != PAIRS) return nibbles(type, index, quants, bits, mask, aid);
  if (index == 3) return i16x8.shr_u(quants, 12);
  return v128.and(index == 0 ? quants : i16x8.shr_u(quants, index == 1 ? 8 : 4), mask);
}

/**
 * Returns the low nibbles (`high` = 0) or the high nibbles (1) of `quants`: with fifth bits, or looked up in the
 * codebook.
 */
// @ts-expect-error: decorator
@inline
function nibbles(type: i32, high: i32, quants: v128, bits: v128, mask: v128, aid: v128): v128 {
  const found = v128.and(high ? i16x8.shr_u(quants, 4) : quants, mask);
  if (hasCodebook(type)) return lookUp(aid, found);
  return hasFifthBits(type) ? v128.or(found, v128.and(high ? bits : i32x4.shl(bits, 4), aid)) : found;
}

/** Returns the number of bytes from the activation values of operand 0 to those of operand `index`. */
// @ts-expect-error: decorator
@inline
export function valuesOf(type: i32, products: i32, index: i32): usize {
  if (type == Q8_0) return index << 2;
  return products == PAIRS ? ((index >> 1) << 5) + ((index & 1) << 2) : index << 4;
}

/** Returns the initial value of a block's sums: the column's offset if it is an integer, else 0. */
// @ts-expect-error: decorator
@inline
export function start(type: i32, products: i32, offset: usize): v128 {
  return offsetIsSum(type, products) ? i32x4.splat(0) : v128.load32_splat(offset);
}

/**
 * Returns `total` (the sum of each row) plus a block's sums times their scales. If the type has mins, also adds the
 * mins times the sum of the activations.
 */
// @ts-expect-error: decorator
@inline
export function finish(
  type: i32,
  products: i32,
  sums: v128,
  scales: v128,
  minimums: v128,
  scale: v128,
  offset: v128,
  total: v128,
): v128 {
  if (products == NARROW) sums = i32x4.dot_i16x8_s(sums, i16x8.splat(1));
  if (hasMinimums(type) && !offsetIsSum(type, products)) {
    const undone = i32x4.dot_i16x8_s(offset, i16x8.splat(1));
    sums = i32x4.sub(sums, undone);
    offset = f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(undone), f32x4.splat(<f32>-1 / <f32>biasOf(type))), scale);
  }
  total = multiplyAdd(f32x4.convert_i32x4_s(sums), f32x4.mul(scales, scale), total);
  return hasMinimums(type) ? multiplyAdd(minimums, offset, total) : total;
}

/** Returns `sums` plus the products of four operands with the activation values x0 to x3. */
// @ts-expect-error: decorator
@inline
export function addFour(
  type: i32,
  products: i32,
  x0: v128,
  x1: v128,
  x2: v128,
  x3: v128,
  quants: usize,
  bits: v128,
  mask: v128,
  aid: v128,
  sums: v128,
): v128 {
  const u = v128.load(quants);
  if (type != Q8_0 && products == PAIRS) {
    sums = add(products, x0, part(type, products, 0, u, bits, mask, aid), sums);
    sums = add(products, x1, part(type, products, 1, u, bits, mask, aid), sums);
    sums = add(products, x2, part(type, products, 2, u, bits, mask, aid), sums);
    return add(products, x3, part(type, products, 3, u, bits, mask, aid), sums);
  }
  const v = v128.load(quants, 16);
  if (type == Q8_0 && products == WIDE) {
    sums = add(products, x1, v, add(products, x0, u, sums));
    return add(products, x3, v128.load(quants, 48), add(products, x2, v128.load(quants, 32), sums));
  }
  sums = add(products, x0, part(type, products, 0, u, bits, mask, aid), sums);
  sums = add(products, x1, part(type, products, 1, u, bits, mask, aid), sums);
  bits = nextFifths(type, bits, 1);
  sums = add(products, x2, part(type, products, 0, v, bits, mask, aid), sums);
  return add(products, x3, part(type, products, 1, v, bits, mask, aid), sums);
}

/** Returns the scales of a block of four rows as floats. */
// @ts-expect-error: decorator
@inline
export function loadScales(type: i32, at: usize, mask: v128, factor: v128): v128 {
  return type == MXFP4 ? loadExponents(at) : loadHalves(at, mask, factor);
}

/** Returns 2^(byte - 127) for four bytes. Byte 0 gives 0, because such weights are too small to affect a sum. */
// @ts-expect-error: decorator
@inline
function loadExponents(at: usize): v128 {
  const bytes = v128.load32_zero(at);
  return i32x4.shl(i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes)), 23);
}

/**
 * Returns the four float16 numbers at `at` as floats. This is correct for all finite numbers. After the shift, a
 * subnormal float16 is a subnormal float, and the factor makes it normal.
 */
// @ts-expect-error: decorator
@inline
export function loadHalves(at: usize, mask: v128, factor: v128): v128 {
  return f32x4.mul(v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask), factor);
}
