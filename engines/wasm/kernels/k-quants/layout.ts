// Owns how matrices of types with blocks of 256 columns lie in memory, and the activations beside them. The other
// superblocks-*.ts are written against it; nothing else may know it. Ways of multiplying: layout.ts.
//
// Rows go in groups of four. A matrix is two planes: records, one for each group and 256 columns, and super-scales, for
// each record 4 halves and, where a type has minimums, 4 halves more. A record is the scales of its eight blocks of 32
// columns, then their quants. All vectors have a row in each 32-bit lane.
//
//   scales   8 bytes a block, two for each row: one for each half of the block, or scale and minimum of all of it. The
//            row's two lie beside each other, but WIDE and PAIRS have four first halves, then four second ones. IQ4_XS
//            has 4 bytes a block. Q2_K has scale (low) and minimum in nibbles of a byte.
//   quants   a block has eight operands of four columns, four in each of two steps, made of these vectors:
//              4 and 5 bits   two a step: operands 0 (low nibbles) and 1, 2 and 3; behind the block's, for 5 bits, one
//                             with the bit of operand i of step s as bit 4s + i
//              6 bits         three a step: operands 0, 1, 2, and in their two upper bits those of 3, upper ones first
//              2 and 3 bits   one a step, operand i from bit 2i on; for 3 bits the third ones as the fifth above
//   columns  operand i of step s has columns 16s + 4i.., so a step is half a block. NARROW instead has in each operand
//            two of both halves, 8s + 2i and 8s + 2i + 1 and the same plus 16: so each of a lane's two 16-bit sums
//            belongs to one half, and one instruction multiplies both by their scales and adds them up.
//
// Activations have the quantised values in operands' order, signed 8-bit, or 16-bit for PAIRS, where an operand's lie
// in the order 0 2 1 3. A record has one or four columns' values of a block, then for each column: scale (f32), sum of
// what its values mean, negative (f32), and the negative sums of its values in step 0 and in step 1 (i32, or for NARROW
// two of 16 bits, one for each half of the block).
import { NARROW, PAIRS, productsFor, WIDE } from "../block-quants/layout";
import { IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_K, Q5_K, Q6_K } from "../types";

export { NARROW, PAIRS, WIDE };

export const SUPER: i32 = 256;
/** Blocks in a record. */
export const BLOCKS: i32 = 8;
/**
 * Scratch of a call, in the first 64 KiB of the memory, which the host leaves to the kernels: a record of a group,
 * taken apart, and whatever packing needs beside it.
 */
export const PANEL: usize = 8192;
/** The same while products are made: the operands of a step of as many groups as a tile has. */
export const STEP_SCRATCH: usize = 8192;
/** Where a record of activations has what is not values, for each column 4 bytes of: */
const SCALES_AT: i32 = 0;
const SUMS_AT: i32 = 1;
const STEPS_AT: i32 = 2;
export const TAIL_WORDS: i32 = 4;

// @ts-expect-error: decorator
@inline
export function isSuperblock(type: i32): bool {
  return (type >= Q2_K && type <= Q6_K) || type == IQ4_XS;
}

/** How matrices of this type are multiplied. A block's sum is exact in every way. */
// @ts-expect-error: decorator
@inline
export function superProducts(type: i32): i32 {
  const products = productsFor(Q4_0);
  // The signed codebook has no 7-bit form.
  return type == IQ4_XS && products == NARROW ? PAIRS : products;
}

/** Whether each half of a block has a scale of its own. */
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

/** Whether a block's sum may go on from step to step: with one scale, where NARROW's 16 bits have room for it. */
// @ts-expect-error: decorator
@inline
export function runsThrough(type: i32, products: i32): bool {
  return !hasHalves(type) && (products != NARROW || type == Q4_K);
}

/** By how many bits 1 is shifted to make what operands are more than they mean; 0 where they are nothing more. */
// @ts-expect-error: decorator
@inline
export function biasBits(type: i32, products: i32): i32 {
  if (type == Q6_K) return 5;
  if (type == Q3_K) return 2;
  return type == IQ4_XS && products == WIDE ? 7 : 0;
}

/** Vectors of quants in a step. */
// @ts-expect-error: decorator
@inline
export function vectorsOf(type: i32): i32 {
  if (type == Q6_K) return 3;
  return type == Q2_K || type == Q3_K ? 1 : 2;
}

/** Whether a block has a vector of single bits behind those of its steps. */
// @ts-expect-error: decorator
@inline
export function hasBits(type: i32): bool {
  return type == Q3_K || type == Q5_K;
}

/** Bytes of a block's quants, of a group of rows. */
// @ts-expect-error: decorator
@inline
export function blockBytes(type: i32): i32 {
  return vectorsOf(type) * 32 + (hasBits(type) ? 16 : 0);
}

/** Bytes of a block's scales, of a group of rows. */
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

/** Bytes of one column's values in a record of activations. */
// @ts-expect-error: decorator
@inline
export function superValueBytes(products: i32): i32 {
  return products == PAIRS ? 64 : 32;
}

/** Bytes of a record of activations of this many columns. */
// @ts-expect-error: decorator
@inline
export function activationRecordBytes(products: i32, columns: i32): i32 {
  return columns * (superValueBytes(products) + 4 * TAIL_WORDS);
}

/** How many columns share records, where so many are left: as many as there is a tile for. */
// @ts-expect-error: decorator
@inline
export function superTileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}
