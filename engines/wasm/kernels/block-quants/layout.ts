// Owns how quantised matrices and activations lie in memory, and the choice between the ways of multiplying them. The
// other files of quantised kernels are written against it; nothing else may know it.
//
// A matrix is two planes: quants, then scales. Rows go in groups of four, and a group's blocks of 32 columns follow
// each other. A vector has the same columns of four rows, a row in each 32-bit lane:
//
//   quants, Q8_0   a block is 8 vectors; lane r of vector j has columns 4j..4j+3 of row r, some of them flipped
//   quants, others a block is 4 vectors; likewise with low nibbles, and high ones for columns 16 + 4j..16 + 4j+3
//   quants, Q5_x   before those a vector with the fifth bits: lane r is row r's; bit j of its byte i belongs to the low
//                  nibble in byte i of vector j, bit 4 + j to the high one
//   scales         a block is 4 halves, one of each row, and beside Q4_1 and Q5_1 4 minimums; for MXFP4 4 bytes, which
//                  are exponents of two
//
// Activations are signed 8-bit, with a scale for each 32 columns. Up to four of them share a record a block:
//
//   column 0: 32 values, column 1: 32 values, ... | scale of each column (f32) | offset of each column
//
// where a value is a byte, or for PAIRS 16 bits, and four of those lie in the order 0 2 1 3. The offset is what a
// block's sum starts from because quants are not stored as they are meant (i32; for NARROW one of 16 bits for each of a
// lane's two sums), or beside types with minimums the activations' sum (f32).
import { IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../types";

export const BLOCK: i32 = 32;
/** In a group. */
export const ROWS: i32 = 4;
/** Where minimums are, from their scales. */
export const MINIMUMS_AT: usize = 8;

/** 8-bit products of the 32-bit dot instruction, whose second operand may be up to 255 ("wide"). */
export const WIDE: i32 = 0;
/** 8-bit products summed up in 16 bits, which only weights of up to 5 bits leave room for. */
export const NARROW: i32 = 1;
/** 16-bit products: all of SIMD128 has them. */
export const PAIRS: i32 = 2;

/** Types whose blocks are 32 columns long. */
// @ts-expect-error: decorator
@inline
export function isQuantised(type: i32): bool {
  if (type == Q4_0 || type == Q4_1 || type == Q5_0 || type == Q5_1) return true;
  return type == Q8_0 || type == IQ4_NL || type == MXFP4;
}

let wideDot: bool = false;

/**
 * Whether the dot instruction takes 8-bit unsigned operands (1) or 7-bit ones (0, the default). To be said before
 * anything is packed or prepared: both depend on it.
 */
export function useWideDot(wide: i32): void {
  wideDot = wide != 0;
}

/** How matrices of this type are multiplied. A block's sum is exact in every way. */
// @ts-expect-error: decorator
@inline
export function productsFor(type: i32): i32 {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (wideDot) return WIDE;
    if (type != Q8_0 && type != IQ4_NL) return NARROW;
  }
  return PAIRS;
}

// @ts-expect-error: decorator
@inline
export function hasMinimums(type: i32): bool {
  return type == Q4_1 || type == Q5_1;
}

// @ts-expect-error: decorator
@inline
export function hasFifthBits(type: i32): bool {
  return type == Q5_0 || type == Q5_1;
}

/** Whether numbers stand for levels by a table. */
// @ts-expect-error: decorator
@inline
export function hasCodebook(type: i32): bool {
  return type == IQ4_NL || type == MXFP4;
}

/** By how much operands are more than the levels they stand for, where they are unsigned. */
// @ts-expect-error: decorator
@inline
export function biasOf(type: i32): i32 {
  if (type == Q4_0) return 8;
  if (hasFifthBits(type)) return 16;
  return type == MXFP4 ? 12 : 128;
}

/**
 * Whether a column's offset is the sum of its activations, in floats. For Q5_1 16 bits have no room for what is not
 * counted from the middle: there NARROW makes that sum of the integers that undo the bias.
 */
// @ts-expect-error: decorator
@inline
export function offsetIsSum(type: i32, products: i32): bool {
  return type == Q4_1 || (type == Q5_1 && products != NARROW);
}

/**
 * Whether PAIRS has two columns' operands in 16 bits, and multiplies the first with the second still on top, times 256; by
 * what that adds, the second one's activation has to be less.
 */
// @ts-expect-error: decorator
@inline
export function stacksPairs(type: i32, products: i32): bool {
  return products == PAIRS && type != Q4_0 && type != Q4_1;
}

/** Bytes of one row's quants in a block. */
// @ts-expect-error: decorator
@inline
export function quantBytes(type: i32): i32 {
  return type == Q8_0 ? 32 : 16 + fifthBytes(type);
}

/** Those of them that are fifth bits. */
// @ts-expect-error: decorator
@inline
export function fifthBytes(type: i32): i32 {
  return hasFifthBits(type) ? 4 : 0;
}

/** Bytes of a scale of one row. */
// @ts-expect-error: decorator
@inline
export function scaleBytes(type: i32): i32 {
  return type == MXFP4 ? 1 : 2;
}

/** Bytes of a block in the plane of scales. */
// @ts-expect-error: decorator
@inline
export function scalesBytes(type: i32): i32 {
  if (type == MXFP4) return 4;
  return hasMinimums(type) ? 16 : 8;
}

/**
 * Which bits of signed bytes are flipped, so that those bytes read as unsigned are 128 more. The second operand of WIDE
 * is unsigned. PAIRS multiplies 16 bits as they are, an unsigned even byte plus 256 times a signed odd one.
 */
// @ts-expect-error: decorator
@inline
export function flippedBits(products: i32): i32 {
  return products == WIDE ? 0x80808080 : 0x00800080;
}

/** Those of them that are flipped when a matrix is packed: a codebook has none before it is looked up. */
// @ts-expect-error: decorator
@inline
export function flippedIn(type: i32): i32 {
  return type == Q8_0 ? flippedBits(productsFor(type)) : 0;
}

/** Bytes of one column's values in a record. */
// @ts-expect-error: decorator
@inline
export function valueBytes(products: i32): i32 {
  return products == PAIRS ? 64 : 32;
}

/** Bytes of a record of this many columns. */
// @ts-expect-error: decorator
@inline
export function recordBytes(products: i32, columns: i32): i32 {
  return columns * (valueBytes(products) + 8);
}

/** How many columns share records, where so many are left: as many as there is a tile for. */
// @ts-expect-error: decorator
@inline
export function tileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/** Sign, exponent and fraction of a half, once it is sign-extended and shifted by 13 to where a float has them. */
export const HALF_MASK: i32 = 0x8fffe000;
/** Bits of 2^112, as a float: by how much its exponent is then too small. */
export const HALF_FACTOR: i32 = 0x77800000;
