// Owns how quantised matrices and activations lie in memory, and the choice between the ways of multiplying them. The
// other files of quantised kernels are written against it; nothing else may know it.
//
// A matrix is two planes: quants, then scales. Rows go in groups of four, and a group's blocks of 32 columns follow
// each other. A vector has the same columns of four rows, a row in each 32-bit lane:
//
//   quants, Q8_0   a block is 8 vectors; lane r of vector j has columns 4j..4j+3 of row r, some of them flipped
//   quants, Q4_x   a block is 4 vectors; likewise with low nibbles, and high ones for columns 16 + 4j..16 + 4j+3
//   scales         a block is 4 halves, one of each row; beside Q4_1 then 4 minimums
//
// Activations are signed 8-bit, with a scale for each 32 columns. Up to four of them share a record a block:
//
//   column 0: 32 values, column 1: 32 values, ... | scale of each column (f32) | offset of each column
//
// where a value is a byte, or for PAIRS 16 bits, and four of those lie in the order 0 2 1 3. The offset is what a
// block's sum starts from because quants are not stored as they are meant (i32), or beside Q4_1 the activations' sum
// (f32).
import { Q4_1, Q8_0 } from "./types";

export const BLOCK: i32 = 32;
/** Where minimums are, from their scales. */
export const MINIMUMS_AT: usize = 8;

/** 8-bit products of the 32-bit dot instruction, whose second operand may be up to 255 ("wide"). */
export const WIDE: i32 = 0;
/** 8-bit products summed up in 16 bits, which only 4-bit weights leave room for. */
export const NARROW: i32 = 1;
/** 16-bit products: all of SIMD128 has them. */
export const PAIRS: i32 = 2;

let wideDot: bool = false;

/**
 * Whether the dot instruction takes 8-bit unsigned operands (1) or 7-bit ones (0, the default). To be said before
 * anything is packed or prepared: both depend on it.
 */
export function useWideDot(wide: i32): void {
  wideDot = wide != 0;
}

/** How matrices of this type are multiplied. A block's sum is exact in every way. */
// @ts-ignore: decorator
@inline
export function productsFor(type: i32): i32 {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (wideDot) return WIDE;
    if (type != Q8_0) return NARROW;
  }
  return PAIRS;
}

/** Bytes of one row's quants in a block. */
// @ts-ignore: decorator
@inline
export function quantBytes(type: i32): i32 {
  return type == Q8_0 ? 32 : 16;
}

/** Bytes of a block in the plane of scales. */
// @ts-ignore: decorator
@inline
export function scalesBytes(type: i32): i32 {
  return type == Q4_1 ? 16 : 8;
}

/**
 * Which bits of 8-bit quants are flipped, so that those bytes read as unsigned are quants plus 128. The second operand
 * of WIDE is unsigned. PAIRS multiplies 16 bits as they are, an unsigned even byte plus 256 times a signed odd one.
 */
// @ts-ignore: decorator
@inline
export function flippedBits(products: i32): i32 {
  return products == WIDE ? 0x80808080 : 0x00800080;
}

/** Bytes of one column's values in a record. */
// @ts-ignore: decorator
@inline
export function valueBytes(products: i32): i32 {
  return products == PAIRS ? 64 : 32;
}

/** Bytes of a record of this many columns. */
// @ts-ignore: decorator
@inline
export function recordBytes(products: i32, columns: i32): i32 {
  return columns * (valueBytes(products) + 8);
}

/** How many columns share records, where so many are left: as many as there is a tile for. */
// @ts-ignore: decorator
@inline
export function tileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/** Sign, exponent and fraction of a half, once it is sign-extended and shifted by 13 to where a float has them. */
export const HALF_MASK: i32 = 0x8fffe000;
/** Bits of 2^112, as a float: by how much its exponent is then too small. */
export const HALF_FACTOR: i32 = 0x77800000;
