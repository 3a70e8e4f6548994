// Memory layout of matrices with super-blocks of 256 columns, and of their activations. The other files of this folder
// depend on it; no other file may. The multiplication methods are those of block-quants/layout.ts.
//
// Rows are stored in groups of four. A matrix is two planes. The first has a record for each group and super-block. The
// second has, for each record, 4 super-scales (float16) and, for types with mins, 4 more for the mins. A record is the
// scales of its eight blocks of 32 columns, then their quants. All vectors have one row per 32-bit lane.
//
//   scales   8 bytes a block, two per row: one for each half of the block, or a scale and a min for the whole block.
//            A row's two are adjacent, except that WIDE and PAIRS have four first halves, then four second halves.
//            IQ4_XS has 4 bytes a block. Q2_K has a scale (low) and a min in the nibbles of a byte.
//   quants   a block has eight operands of four columns, four in each of two steps, made of these vectors:
//              4 and 5 bits   two a step: operands 0 (low nibbles) and 1, 2 and 3; for 5 bits, after the block's
//                             vectors, one more with the bit of operand i of step s as bit 4s + i
//              6 bits         three a step: operands 0, 1, 2, with operand 3 in their upper two bits, its highest
//                             bits first
//              2 and 3 bits   one a step, operand i from bit 2i on; for 3 bits the third bits are stored like the
//                             fifth bits above
//   columns  operand i of step s has columns 16s + 4i.., so a step is half a block. In NARROW, each operand instead
//            has two columns of each half, 8s + 2i and 8s + 2i + 1 and the same plus 16: each of a lane's two 16-bit
//            sums then belongs to one half, and one instruction multiplies both by their scales and adds them.
//
// Activations have the quantised values in the order of the operands, as signed 8-bit integers; for PAIRS as 16-bit
// integers, with the four of an operand in the order 0 2 1 3. A record has the values of a block of one, two or four
// columns, then for each column: its scale (f32), the negative sum of its dequantised values (f32), and the negative
// sums of its values in step 0 and in step 1 (i32, or for NARROW two 16-bit integers, one for each half of the block).
import { NARROW, PAIRS, productsFor, WIDE } from "../block-quants/layout";
import { IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_K, Q5_K, Q6_K } from "../types";

export { NARROW, PAIRS, WIDE };

export const SUPER: i32 = 256;
/** Blocks in a record. */
export const BLOCKS: i32 = 8;
/**
 * Scratch of a call, in the first 64 KiB of memory, which the host reserves for the kernels: an unpacked record of a
 * group, and the other buffers of packing.
 */
export const PANEL: usize = 8192;
/** Scratch during products: the operands of one step, for as many groups as a tile has. */
export const STEP_SCRATCH: usize = 8192;
/** Index of each per-column word after the values in a record of activations; each word has 4 bytes per column. */
const SCALES_AT: i32 = 0;
const SUMS_AT: i32 = 1;
const STEPS_AT: i32 = 2;
export const TAIL_WORDS: i32 = 4;

// @ts-expect-error: decorator
@inline
export function hasSuperBlocks(type: i32): bool {
  return (type >= Q2_K && type <= Q6_K) || type == IQ4_XS;
}

/** Multiplication method of this type. A block's sum is exact in every method. */
// @ts-expect-error: decorator
@inline
export function superProducts(type: i32): i32 {
  const products = productsFor(Q4_0);
  // The signed codebook has no 7-bit form.
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

/** Whether a block's sum may continue from step to step: if there is one scale, and the 16 bits of NARROW have room. */
// @ts-expect-error: decorator
@inline
export function runsThrough(type: i32, products: i32): bool {
  return !hasHalves(type) && (products != NARROW || type == Q4_K);
}

/** log2 of the operands' bias; 0 if they have none. */
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

/** Whether a block has a vector of single bits after those of its steps. */
// @ts-expect-error: decorator
@inline
export function hasBits(type: i32): bool {
  return type == Q3_K || type == Q5_K;
}

/** Bytes of a block's quants, for a group of rows. */
// @ts-expect-error: decorator
@inline
export function blockBytes(type: i32): i32 {
  return vectorsOf(type) * 32 + (hasBits(type) ? 16 : 0);
}

/** Bytes of a block's scales, for a group of rows. */
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

/** Bytes of a record of activations of `columns` columns. */
// @ts-expect-error: decorator
@inline
export function activationRecordBytes(products: i32, columns: i32): i32 {
  return columns * (superValueBytes(products) + 4 * TAIL_WORDS);
}

/** Number of the `left` columns that share the next records: as many as there is a tile for. */
// @ts-expect-error: decorator
@inline
export function superTileColumns(left: i32): i32 {
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}
