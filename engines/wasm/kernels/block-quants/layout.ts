// Memory layout of matrices with blocks of 32 columns and of their activations, and the choice of the multiplication
// method. Used by this folder and by k-quants.
//
// A matrix has two planes: first the quants, then the scales. Rows are stored in groups of four. The blocks of a group
// are stored one after the other. A vector has the same columns of four rows, one row per 32-bit lane:
//
//   quants of Q8_0    A block has 8 vectors. Lane r of vector j has columns 4j..4j+3 of row r; some bits are flipped.
//   other quants      A block has 4 vectors. Lane r of vector j has columns 4j..4j+3 of row r in the low nibbles,
//                     and columns 16+4j..16+4j+3 in the high nibbles.
//   fifth bits        In Q5_0 and Q5_1, one more vector before these 4 has the fifth bits. Lane r is row r. Bit j of
//                     byte i belongs to the low nibble in byte i of vector j, and bit 4 + j to the high nibble.
//   scales            A block has 4 float16 scales, one per row. In Q4_1 and Q5_1, 4 float16 mins follow.
//                     In MXFP4, a block has 4 bytes instead: exponents of two.
//
// A column of activations is the input of one token. Activations are signed 8-bit integers, with a scale for each block
// of 32 values. Up to four columns share a record for each block:
//
//   32 values of column 0, 32 values of column 1, ... | scale of each column (f32) | offset of each column
//
// An activation is stored as one byte. With method PAIRS, it takes 16 bits instead, and every four activations are in
// the order 0 2 1 3.
//
// The offset is the initial value of a block's sum. It cancels the bias of the stored quants. The offset is an i32; for
// NARROW, it is two 16-bit integers, one for each of a lane's two sums. If offsetIsSum() is true, the offset is instead
// the sum of the activations (f32).
import { IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../types";

export const BLOCK: i32 = 32;
/** Number of matrix rows in a group. */
export const ROWS: i32 = 4;
/** Number of bytes from a block's scales to its mins. */
export const MINIMUMS_AT: usize = 8;

/** Method: the 32-bit dot instruction multiplies 8-bit numbers. Its second operand is unsigned, up to 255 ("wide"). */
export const WIDE: i32 = 0;
/**
 * Method: 8-bit products are summed in 16 bits. In this folder, only weights of up to 5 bits are small enough for this
 * method.
 */
export const NARROW: i32 = 1;
/** Method: 16-bit products, which need no relaxed SIMD. */
export const PAIRS: i32 = 2;

/** Whether the type has blocks of 32 columns. */
// @ts-expect-error: decorator
@inline
export function isBlockQuant(type: i32): bool {
  if (type == Q4_0 || type == Q4_1 || type == Q5_0 || type == Q5_1) return true;
  return type == Q8_0 || type == IQ4_NL || type == MXFP4;
}

let wideDot: bool = false;

/**
 * Sets whether the unsigned operand of the dot instruction may have 8 bits (1) or 7 bits (0, the default). Call this
 * before packing matrices or preparing activations, because both layouts depend on the setting.
 */
export function useWideDot(wide: i32): void {
  wideDot = wide != 0;
}

/** Returns the multiplication method for this type. Every method computes a block's sum exactly. */
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

/** Whether quants are indices into a table of levels. */
// @ts-expect-error: decorator
@inline
export function hasCodebook(type: i32): bool {
  return type == IQ4_NL || type == MXFP4;
}

/** Returns the bias of the operands: the number that is added to each level to make it unsigned. */
// @ts-expect-error: decorator
@inline
export function biasOf(type: i32): i32 {
  if (type == Q4_0) return 8;
  if (hasFifthBits(type)) return 16;
  return type == MXFP4 ? 12 : 128;
}

/**
 * Whether the offset in a column of activations is the sum of the activations, as a float. This is false for Q5_1 with
 * method NARROW, because its operands need a bias to fit in 16 bits. In that case, finish() computes the sum of the
 * activations from the offset.
 */
// @ts-expect-error: decorator
@inline
export function offsetIsSum(type: i32, products: i32): bool {
  return type == Q4_1 || (type == Q5_1 && products != NARROW);
}

/**
 * Whether method PAIRS multiplies 16-bit numbers that stack two weights: the even weight plus 256 times the odd weight.
 * To correct the product, prepare() subtracts 256 times the even activation from the odd activation.
 */
// @ts-expect-error: decorator
@inline
export function stacksPairs(type: i32, products: i32): bool {
  return products == PAIRS && type != Q4_0 && type != Q4_1;
}

/** Returns the size in bytes of one row's quants in a block, including fifth bits. */
// @ts-expect-error: decorator
@inline
export function quantBytes(type: i32): i32 {
  return type == Q8_0 ? 32 : 16 + fifthBytes(type);
}

/** Returns the size in bytes of one row's fifth bits in a block. */
// @ts-expect-error: decorator
@inline
export function fifthBytes(type: i32): i32 {
  return hasFifthBits(type) ? 4 : 0;
}

/** Returns the size in bytes of the scale of one row in a block. */
// @ts-expect-error: decorator
@inline
export function scaleBytes(type: i32): i32 {
  return type == MXFP4 ? 1 : 2;
}

/** Returns the size in bytes of a block of four rows in the plane of scales. */
// @ts-expect-error: decorator
@inline
export function scalesBytes(type: i32): i32 {
  if (type == MXFP4) return 4;
  return hasMinimums(type) ? 16 : 8;
}

/**
 * Returns the mask that is XORed with signed bytes. If the top bit of a signed byte is flipped and the byte is read as
 * unsigned, its value is 128 larger. WIDE needs this for all bytes. PAIRS reads 16 bits as an unsigned even byte plus
 * 256 times a signed odd byte, so only the even byte is flipped.
 */
// @ts-expect-error: decorator
@inline
export function flippedBits(products: i32): i32 {
  return products == WIDE ? 0x80808080 : 0x00800080;
}

/**
 * Returns the mask of the bits that are flipped when a matrix is packed. It is 0 for types with a codebook, because
 * their levels are flipped when they are looked up.
 */
// @ts-expect-error: decorator
@inline
export function flippedIn(type: i32): i32 {
  return type == Q8_0 ? flippedBits(productsFor(type)) : 0;
}

/** Returns the size in bytes of one column of activations in a record (one block of each column). */
// @ts-expect-error: decorator
@inline
export function valueBytes(products: i32): i32 {
  return products == PAIRS ? 64 : 32;
}

/** Returns the size in bytes of a record of activations: one block of each of `columns` columns. */
// @ts-expect-error: decorator
@inline
export function recordBytes(products: i32, columns: i32): i32 {
  return columns * (valueBytes(products) + 8);
}

/** Returns how many columns of activations the next tile processes, if `left` columns remain. */
// @ts-expect-error: decorator
@inline
export function tileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/**
 * Mask of sign, exponent and fraction of a float16 that was sign-extended and shifted left by 13. The shift moves these
 * three fields to their positions in a float.
 */
export const HALF_MASK: i32 = 0x8fffe000;
/**
 * Bits of the float 2^112. The shifted bits of a float16, read as a float, are multiplied by this factor to correct the
 * exponent's bias.
 */
export const HALF_FACTOR: i32 = 0x77800000;
