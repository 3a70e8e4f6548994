// Owns what the inner loops of quantised products do with one vector: taking quants apart, adding products, finishing a
// block. Inlined everywhere; `type` and `products` are constants by then, and what does not apply to them vanishes.
import { multiplyAdd } from "./arithmetic";
import { NARROW, PAIRS, WIDE } from "./quantised-layout";
import { Q4_1, Q8_0 } from "./types";

/** Sums with the products of quants (of four rows) and values (on each lane the same) added. */
// @ts-ignore: decorator
@inline
export function add(products: i32, values: v128, quants: v128, sums: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (products == WIDE) return i32x4.relaxed_dot_i8x16_i7x16_add_s(values, quants, sums);
    if (products == NARROW) return i16x8.add(sums, i16x8.relaxed_dot_i8x16_i7x16_s(values, quants));
  }
  return i32x4.add(sums, i32x4.dot_i16x8_s(values, quants));
}

/** How many operands a vector of quants is taken apart into: nibbles for 4-bit types, even and odd bytes for PAIRS. */
// @ts-ignore: decorator
@inline
export function parts(type: i32, products: i32): i32 {
  return (type == Q8_0 ? 1 : 2) * (products == PAIRS ? 2 : 1);
}

/**
 * A constant in all lanes that V8 cannot know. The V8 that has the wide dot makes constants anew at each use, with
 * three instructions; older ones keep them. `any` is where any vector is.
 */
// @ts-ignore: decorator
@inline
export function opaque(products: i32, bits: i32, any: usize): v128 {
  if (products != WIDE) return i32x4.splat(bits);
  const vector = v128.load(any);
  return v128.or(i32x4.splat(bits), i32x4.ne(vector, vector));
}

/** What part() masks with. */
// @ts-ignore: decorator
@inline
export function partMask(products: i32): i32 {
  return products == PAIRS ? 0x000f000f : 0x0f0f0f0f;
}

/** The operand `index` of add() that is in a vector of quants. */
// @ts-ignore: decorator
@inline
export function part(type: i32, products: i32, index: i32, quants: v128, mask: v128): v128 {
  if (type == Q8_0) return index == 0 ? quants : i16x8.shr_s(quants, 8);
  if (products != PAIRS) return v128.and(index == 0 ? quants : i16x8.shr_u(quants, 4), mask);
  if (index == 3) return i16x8.shr_u(quants, 12);
  return v128.and(index == 0 ? quants : i16x8.shr_u(quants, index == 1 ? 8 : 4), mask);
}

/** Where the values for a part are, from those for the first. */
// @ts-ignore: decorator
@inline
export function valuesOf(type: i32, products: i32, index: i32): usize {
  if (type == Q8_0) return index << 2;
  return products == PAIRS ? ((index >> 1) << 5) + ((index & 1) << 2) : index << 4;
}

/** What a block's sums start from: the offset, where it is an integer. */
// @ts-ignore: decorator
@inline
export function start(type: i32, products: i32, offset: usize): v128 {
  return type == Q4_1 ? i32x4.splat(0) : v128.load32_splat(offset);
}

/** Rows' totals with a block's sums added. */
// @ts-ignore: decorator
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
  total = multiplyAdd(f32x4.convert_i32x4_s(sums), f32x4.mul(scales, scale), total);
  return type == Q4_1 ? multiplyAdd(minimums, offset, total) : total;
}

/** Sums with four parts added; the vectors they come from follow each other. */
// @ts-ignore: decorator
@inline
export function addFour(
  type: i32,
  products: i32,
  x0: v128,
  x1: v128,
  x2: v128,
  x3: v128,
  quants: usize,
  mask: v128,
  sums: v128,
): v128 {
  const u = v128.load(quants);
  if (type != Q8_0 && products == PAIRS) {
    sums = add(products, x0, part(type, products, 0, u, mask), sums);
    sums = add(products, x1, part(type, products, 1, u, mask), sums);
    sums = add(products, x2, part(type, products, 2, u, mask), sums);
    return add(products, x3, part(type, products, 3, u, mask), sums);
  }
  const v = v128.load(quants, 16);
  if (type == Q8_0 && products == WIDE) {
    sums = add(products, x1, v, add(products, x0, u, sums));
    return add(products, x3, v128.load(quants, 48), add(products, x2, v128.load(quants, 32), sums));
  }
  sums = add(products, x0, part(type, products, 0, u, mask), sums);
  sums = add(products, x1, part(type, products, 1, u, mask), sums);
  sums = add(products, x2, part(type, products, 0, v, mask), sums);
  return add(products, x3, part(type, products, 1, v, mask), sums);
}

/** Four halves as floats. Right for all finite ones: a subnormal half is a subnormal float until it is multiplied. */
// @ts-ignore: decorator
@inline
export function loadHalves(at: usize, mask: v128, factor: v128): v128 {
  return f32x4.mul(v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask), factor);
}
