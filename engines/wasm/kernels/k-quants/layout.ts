// Memory layout of matrices with super-blocks of 256 columns, and of their activations. Used only in this folder.
// block-quants/layout.ts defines the multiplication methods WIDE, NARROW and PAIRS.
//
// Rows are stored in groups of four. All vectors have one row per 32-bit lane. A matrix has two planes. The first plane
// has a record for each group and super-block. For each record, the second plane has 4 float16 super-scales, one per
// row. For types with mins, 4 float16 super-scales of the mins follow.
//
// A record has the scales of its eight blocks of 32 columns, then their quants.
//
// Scales: a block has 8 bytes, two per row. The two bytes are a scale for each half of the block, or a scale and a min
// for the whole block. The two bytes of a row are adjacent. Exception: if each half has a scale and the method is WIDE
// or PAIRS, the scales of the first halves of all rows come first. IQ4_XS has one byte per row. Q2_K has a scale in the
// low nibble of each byte and a min in the high nibble.
//
// Quants: a block is processed in two steps. A step has four operands, each with four columns of four rows. The vectors
// of a step contain these operands:
//
//   4 and 5 bits   first vector: operand 0 in the low nibbles, operand 1 in the high nibbles; second vector: 2 and 3
//   6 bits         three vectors: operands 0, 1 and 2 in the low six bits; operand 3 in the upper two bits of all three
//   2 and 3 bits   one vector: operand i begins at bit 2i of each byte
//
// For 6 bits, the first vector has the highest bits of operand 3. For 5 and 3 bits, a block has one more vector after
// the vectors of both steps. This vector has the highest bit of each operand: bit 4s + i of a byte belongs to operand i
// of step s.
//
// Columns: operand i of step s has the four columns from 16s + 4i on, so a step is half a block. For NARROW, operand i
// has columns 8s + 2i and 8s + 2i + 1, and the two columns that are 16 higher. Each of a lane's two 16-bit sums then
// belongs to one half of the block. One instruction can therefore multiply both sums by their scales and add them.
//
// A column of activations is the input of one token. Its quantised values are stored in the order of the operands, as
// signed 8-bit integers. For PAIRS, the values are 16-bit integers, and the four values of an operand are in the order
// 0 2 1 3. A record of activations has one block of one, two or four columns: first the values, then for each column
//
//   - its scale (f32),
//   - the negative sum of its dequantised values (f32),
//   - the negative sum of its values in step 0 and in step 1 (i32; for NARROW two 16-bit integers, one for each half).
import { NARROW, PAIRS, productsFor, WIDE } from "../block-quants/layout";
import { IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_K, Q5_K, Q6_K } from "../types";

export { NARROW, PAIRS, WIDE };

export const SUPER: i32 = 256;
/** Number of blocks of 32 columns in a super-block. */
export const BLOCKS: i32 = 8;
/**
 * Address of scratch memory, in the first 64 KiB of memory, which the host reserves for the kernels. It has the buffers
 * for packing rows, or one unpacked record while a single row is unpacked.
 */
export const PANEL: usize = 8192;
/** Address of scratch memory for products. It has the operands of one step (half a block), for each group of a tile. */
export const STEP_SCRATCH: usize = 8192;
/**
 * A record of activations has the quantized values, then scales, sums and sums of steps, each with 4 bytes for each column. These are the
 * positions of the parts after the values, in units of 4 bytes times the number of columns.
 */
const SCALES_AT: i32 = 0;
const SUMS_AT: i32 = 1;
const STEPS_AT: i32 = 2;
export const TAIL_WORDS: i32 = 4;

// @ts-expect-error: decorator
@inline
export function hasSuperBlocks(type: i32): bool {
  return (type >= Q2_K && type <= Q6_K) || type == IQ4_XS;
}

/** Returns the multiplication method for this type. Every method computes a block's sum exactly. */
// @ts-expect-error: decorator
@inline
export function superProducts(type: i32): i32 {
  const products = productsFor(Q4_0);
  // NARROW needs operands of 7 bits, but the signed levels of IQ4_XS need 8 bits.
  return type == IQ4_XS && products == NARROW ? PAIRS : products;
}

/** Whether each half of a block has its own scale. */
// @ts-expect-error: decorator
@inline
export function hasHalves(type: i32): bool {
  return type == Q2_K || type == Q3_K || type == Q6_K;
}

// @ts-expect-error: decorator
@inline
export function hasMinimums(type: i32): bool {
  return type == Q2_K || type == Q4_K || type == Q5_K;
}

/**
 * Whether both steps (halves) of a block are summed before the scale is applied. This requires one scale for the block.
 * For NARROW, the sum must also fit in 16 bits.
 */
// @ts-expect-error: decorator
@inline
export function runsThrough(type: i32, products: i32): bool {
  return !hasHalves(type) && (products != NARROW || type == Q4_K);
}

/** Returns log2 of the bias: the number that is added to signed quants so that operands are unsigned; 0 = no bias. */
// @ts-expect-error: decorator
@inline
export function biasBits(type: i32, products: i32): i32 {
  if (type == Q6_K) return 5;
  if (type == Q3_K) return 2;
  return type == IQ4_XS && products == WIDE ? 7 : 0;
}

/** Returns the number of vectors of quants in a step (half a block). */
// @ts-expect-error: decorator
@inline
export function vectorsOf(type: i32): i32 {
  if (type == Q6_K) return 3;
  return type == Q2_K || type == Q3_K ? 1 : 2;
}

/** Whether a block has one more vector, with the highest bits of its operands, after the vectors of its steps. */
// @ts-expect-error: decorator
@inline
export function hasBits(type: i32): bool {
  return type == Q3_K || type == Q5_K;
}

/** Returns the size in bytes of a block's quants, for a group of four rows. */
// @ts-expect-error: decorator
@inline
export function blockBytes(type: i32): i32 {
  return vectorsOf(type) * 32 + (hasBits(type) ? 16 : 0);
}

/** Returns the size in bytes of a block's scales, for a group of four rows. */
// @ts-expect-error: decorator
@inline
export function scaleBytes(type: i32): i32 {
  return type == IQ4_XS ? 4 : 8;
}

// @ts-expect-error: decorator
@inline
export function superRecordBytes(type: i32): i32 {
  return BLOCKS * (scaleBytes(type) + blockBytes(type));
}

// @ts-expect-error: decorator
@inline
export function superScaleBytes(type: i32): i32 {
  return hasMinimums(type) ? 16 : 8;
}

/** Returns the size in bytes of one column's quantised values in a record of activations (one block of each column). */
// @ts-expect-error: decorator
@inline
export function superValueBytes(products: i32): i32 {
  return products == PAIRS ? 64 : 32;
}

/** Returns the size in bytes of a record of activations: one block of each of `columns` columns. */
// @ts-expect-error: decorator
@inline
export function activationRecordBytes(products: i32, columns: i32): i32 {
  return columns * (superValueBytes(products) + 4 * TAIL_WORDS);
}

/** Returns how many columns of activations the next tile processes, if `left` columns remain. */
// @ts-expect-error: decorator
@inline
export function superTileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}
