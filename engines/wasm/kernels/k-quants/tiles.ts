// Inner loop of k-quant products with one column of activations, in tiles of 16 rows. The loop reads packed records
// directly. It determines the decode speed of k-quant models. Called by loops.ts. layout.ts defines the formats.
//
// A block is summed exactly, in integers. Blocks, then records (super-blocks), are added to a row's total in the same
// order as in fours.ts and twos.ts. Therefore, the results of a column do not depend on the number of columns in the
// product.
//
// block-quants/tiles.ts explains why the loops must not be unrolled. Mins have their own loop, because a loop for
// quants and mins would have too many sums for 16 vector registers.
import { multiplyAdd } from "../arithmetic";
import { HALF_FACTOR, HALF_MASK } from "../block-quants/layout";
import { loadHalves } from "../block-quants/operands";
import {
  activationRecordBytes, BLOCKS, hasBits, hasMinimums, runsThrough, scaleBytes, superRecordBytes,
  superScaleBytes, superValueBytes, vectorsOf,
} from "./layout";
import {
  addMinimums, addProducts, addStep, bits, blockStart, FIRST_STEP, inFloats, keptExtra, keptMask, operand, operandBytes,
  stepScale, stepScaleBytes, stepStart,
} from "./operands";

/** Returns `sums` plus the products of one column of activations with one step (half of a block) of four rows. */
// @ts-expect-error: decorator
@inline
function addOperands(
  type: i32, products: i32, x0: v128, x1: v128, x2: v128, x3: v128, at: usize, quants: usize, high: v128, mask: v128,
  extra: v128, sums: v128,
): v128 {
  const v0 = v128.load(quants), v1 = vectorsOf(type) > 1 ? v128.load(quants, 16) : v0;
  const v2 = vectorsOf(type) > 2 ? v128.load(quants, 32) : v0;
  const next = operandBytes(products);
  sums = addProducts(type, products, x0, at, operand(type, 0, v0, v1, v2, high, mask, extra), sums);
  sums = addProducts(type, products, x1, at + next, operand(type, 1, v0, v1, v2, high, mask, extra), sums);
  sums = addProducts(type, products, x2, at + next * 2, operand(type, 2, v0, v1, v2, high, mask, extra), sums);
  return addProducts(type, products, x3, at + next * 3, operand(type, 3, v0, v1, v2, high, mask, extra), sums);
}

/**
 * Multiplies four groups of four rows, one group from each quarter of the matrix, by one column of activations. Four
 * streams of reads use more of the memory bandwidth than one stream.
 */
// @ts-expect-error: decorator
@inline
export function multiplyOne(
  type: i32, products: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize,
): void {
  const apart = <usize>(rows >> 4) * supers;
  const gap = apart * superRecordBytes(type), superGap = apart * superScaleBytes(type);
  const stepBytes = <usize>vectorsOf(type) << 4, next = operandBytes(products);
  const mask = keptMask(type, products, x);
  const extra = keptExtra(type, products, x);
  let scales = matrix + <usize>group * supers * superRecordBytes(type);
  let supersAt = matrix + <usize>(rows >> 2) * supers * superRecordBytes(type) +
    <usize>group * supers * superScaleBytes(type);
  let t0 = f32x4.splat(0), t1 = t0, t2 = t0, t3 = t0;
  for (let s = 0; s < supers; s++) {
    const end = scales + BLOCKS * scaleBytes(type);
    if (hasMinimums(type)) {
      let m0 = f32x4.splat(0), m1 = m0, m2 = m0, m3 = m0;
      let at = scales, tail = x + superValueBytes(products);
      do {
        const scale = v128.load32_splat(tail);
        m0 = addMinimums(type, products, at, tail + 8, 4, scale, m0);
        m1 = addMinimums(type, products, at + gap, tail + 8, 4, scale, m1);
        m2 = addMinimums(type, products, at + gap * 2, tail + 8, 4, scale, m2);
        m3 = addMinimums(type, products, at + gap * 3, tail + 8, 4, scale, m3);
        at += scaleBytes(type);
        tail += activationRecordBytes(products, 1);
      } while (at < end);
      t0 = addScaled(supersAt + 8, m0, t0); t1 = addScaled(supersAt + 8 + superGap, m1, t1);
      t2 = addScaled(supersAt + 8 + superGap * 2, m2, t2); t3 = addScaled(supersAt + 8 + superGap * 3, m3, t3);
    }
    let quants = end;
    let u0 = f32x4.splat(0), u1 = u0, u2 = u0, u3 = u0;
    do {
      const tail = x + superValueBytes(products);
      const single = quants + stepBytes * 2;
      const through = runsThrough(type, products);
      let s0 = through ? blockStart(type, products, tail + 8, 4) : i32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
      let at = x, sums = tail + 8, part = scales;
      let factor = i32x4.splat(FIRST_STEP);
      do {
        const x0 = v128.load32_splat(at), x1 = v128.load32_splat(at + next);
        const x2 = v128.load32_splat(at + next * 2), x3 = v128.load32_splat(at + next * 3);
        const h0 = bits(type, single, factor), h1 = bits(type, single + gap, factor);
        const h2 = bits(type, single + gap * 2, factor), h3 = bits(type, single + gap * 3, factor);
        if (through) {
          s0 = addOperands(type, products, x0, x1, x2, x3, at, quants, h0, mask, extra, s0);
          s1 = addOperands(type, products, x0, x1, x2, x3, at, quants + gap, h1, mask, extra, s1);
          s2 = addOperands(type, products, x0, x1, x2, x3, at, quants + gap * 2, h2, mask, extra, s2);
          s3 = addOperands(type, products, x0, x1, x2, x3, at, quants + gap * 3, h3, mask, extra, s3);
        } else {
          const start = stepStart(type, products, sums);
          const a = addOperands(type, products, x0, x1, x2, x3, at, quants, h0, mask, extra, start);
          s0 = addStep(products, a, stepScale(type, products, part), s0);
          const b = addOperands(type, products, x0, x1, x2, x3, at, quants + gap, h1, mask, extra, start);
          s1 = addStep(products, b, stepScale(type, products, part + gap), s1);
          const c = addOperands(type, products, x0, x1, x2, x3, at, quants + gap * 2, h2, mask, extra, start);
          s2 = addStep(products, c, stepScale(type, products, part + gap * 2), s2);
          const d = addOperands(type, products, x0, x1, x2, x3, at, quants + gap * 3, h3, mask, extra, start);
          s3 = addStep(products, d, stepScale(type, products, part + gap * 3), s3);
        }
        if (hasBits(type)) factor = i16x8.shr_u(factor, 4);
        quants += stepBytes;
        at += next * 4;
        sums += 4;
        part += stepScaleBytes(type, products);
      } while (quants < single);
      if (through) {
        s0 = addStep(products, s0, stepScale(type, products, scales), i32x4.splat(0));
        s1 = addStep(products, s1, stepScale(type, products, scales + gap), i32x4.splat(0));
        s2 = addStep(products, s2, stepScale(type, products, scales + gap * 2), i32x4.splat(0));
        s3 = addStep(products, s3, stepScale(type, products, scales + gap * 3), i32x4.splat(0));
      }
      const scale = v128.load32_splat(tail);
      u0 = multiplyAdd(inFloats(products, s0), scale, u0); u1 = multiplyAdd(inFloats(products, s1), scale, u1);
      u2 = multiplyAdd(inFloats(products, s2), scale, u2); u3 = multiplyAdd(inFloats(products, s3), scale, u3);
      if (hasBits(type)) quants += 16;
      scales += scaleBytes(type);
      x += activationRecordBytes(products, 1);
    } while (scales < end);
    t0 = addScaled(supersAt, u0, t0); t1 = addScaled(supersAt + superGap, u1, t1);
    t2 = addScaled(supersAt + superGap * 2, u2, t2); t3 = addScaled(supersAt + superGap * 3, u3, t3);
    supersAt += superScaleBytes(type);
    scales = quants;
  }
  const below = <usize>rows;
  y += <usize>group << 4;
  v128.store(y, t0); v128.store(y + below, t1); v128.store(y + below * 2, t2); v128.store(y + below * 3, t3);
}

/** Returns `total` (one sum per row) plus a super-block's sums times their super-scales. */
// @ts-expect-error: decorator
@inline
export function addScaled(superScales: usize, sum: v128, total: v128): v128 {
  return multiplyAdd(loadHalves(superScales, i32x4.splat(HALF_MASK), i32x4.splat(HALF_FACTOR)), sum, total);
}

/**
 * Adds the sums of a super-block for one column, times the super-scales, to y. `upper` and `lower` are the sums of two
 * groups of four rows.
 */
// @ts-expect-error: decorator
@inline
export function addRows(superScales: usize, superGap: usize, upper: v128, lower: v128, y: usize, below: usize): void {
  v128.store(y, addScaled(superScales, upper, v128.load(y)));
  v128.store(y + below, addScaled(superScales + superGap, lower, v128.load(y + below)));
}
