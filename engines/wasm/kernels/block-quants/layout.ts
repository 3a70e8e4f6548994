// Memory layout of matrices with blocks of 32 columns and of their activations, and the choice of multiplication method.
// The other files of this folder depend on it; only k-quants uses it besides.
//
// A matrix is two planes: quants, then scales. Rows are stored in groups of four, and a group's blocks of 32 columns
// follow each other. A vector has the same columns of four rows, one row per 32-bit lane:
//
//   quants, Q8_0   a block is 8 vectors; lane r of vector j has columns 4j..4j+3 of row r, some bits flipped
//   quants, others a block is 4 vectors; the same with low nibbles; high nibbles are columns 16 + 4j..16 + 4j+3
//   quants, Q5_x   before those a vector with the fifth bits: lane r is row r; bit j of its byte i belongs to the low
//                  nibble in byte i of vector j, bit 4 + j to the high nibble
//   scales         a block is 4 float16, one per row, followed in Q4_1 and Q5_1 by 4 mins; for MXFP4 4 bytes, which
//                  are exponents of two
//
// Activations are signed 8-bit integers, with a scale for each 32 columns. Up to four columns share a record per block:
//
//   column 0: 32 values, column 1: 32 values, ... | scale of each column (f32) | offset of each column
//
// A value is a byte, or for PAIRS 16 bits, with each four in the order 0 2 1 3. The offset is the initial value of a
// block's sum; it undoes the bias of stored quants (i32; for NARROW 16 bits for each of a lane's two sums). For types
// with mins it is the sum of the activations (f32).
import { IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../types";

export const BLOCK: i32 = 32;
/** Rows in a group. */
export const ROWS: i32 = 4;
/** Offset of the mins after their scales. */
export const MINIMUMS_AT: usize = 8;

/** Method: 8-bit products by the 32-bit dot instruction, whose second operand may be up to 255 ("wide"). */
export const WIDE: i32 = 0;
/** Method: 8-bit products summed in 16 bits; only weights of up to 5 bits leave room for this. */
export const NARROW: i32 = 1;
/** Method: 16-bit products, which all of SIMD128 has. */
export const PAIRS: i32 = 2;

/** Types with blocks of 32 columns. */
// @ts-expect-error: decorator
@inline
export function isBlockQuant(type: i32): bool {
  if (type == Q4_0 || type == Q4_1 || type == Q5_0 || type == Q5_1) return true;
  return type == Q8_0 || type == IQ4_NL || type == MXFP4;
}

let wideDot: bool = false;

/**
 * Sets whether the dot instruction takes 8-bit unsigned operands (1) or 7-bit ones (0, the default). Call it before
 * anything is packed or prepared: both depend on it.
 */
export function useWideDot(wide: i32): void {
  wideDot = wide != 0;
}

/** Multiplication method of this type. A block's sum is exact in every method. */
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

/** Whether quants are indices of a table of levels. */
// @ts-expect-error: decorator
@inline
export function hasCodebook(type: i32): bool {
  return type == IQ4_NL || type == MXFP4;
}

/** Bias of the operands: how much unsigned operands exceed their levels. */
// @ts-expect-error: decorator
@inline
export function biasOf(type: i32): i32 {
  if (type == Q4_0) return 8;
  if (hasFifthBits(type)) return 16;
  return type == MXFP4 ? 12 : 128;
}

/**
 * Whether a column's offset is the sum of its activations, in floats. For Q5_1 in NARROW, 16 bits have no room for
 * operands without a bias: there the sum is derived from the integers that undo the bias.
 */
// @ts-expect-error: decorator
@inline
export function offsetIsSum(type: i32, products: i32): bool {
  return type == Q4_1 || (type == Q5_1 && products != NARROW);
}

/**
 * Whether PAIRS has two columns' operands in 16 bits, and multiplies the first with the second still on top, times 256.
 * The second one's activation is reduced by the resulting surplus.
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

/** Bytes of fifth bits among them. */
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
 * Bits of signed bytes that are flipped, which adds 128 to those bytes read as unsigned. The second operand of WIDE is
 * unsigned. PAIRS multiplies 16 bits as they are: an unsigned even byte plus 256 times a signed odd one.
 */
// @ts-expect-error: decorator
@inline
export function flippedBits(products: i32): i32 {
  return products == WIDE ? 0x80808080 : 0x00800080;
}

/** The bits that are flipped when a matrix is packed. With a codebook, none are: its levels are flipped at look-up. */
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

/** Bytes of a record of `columns` columns. */
// @ts-expect-error: decorator
@inline
export function recordBytes(products: i32, columns: i32): i32 {
  return columns * (valueBytes(products) + 8);
}

/** Number of the `left` columns that share the next records: as many as there is a tile for. */
// @ts-expect-error: decorator
@inline
export function tileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/**
 * Sign, exponent and fraction of a float16 that was sign-extended and shifted left by 13, to their positions in a
 * float.
 */
export const HALF_MASK: i32 = 0x8fffe000;
/** Bits of the float 2^112: the factor that corrects the exponent of such a number. */
export const HALF_FACTOR: i32 = 0x77800000;
