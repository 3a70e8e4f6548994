// Owns products of matrices with blocks of 256 by many columns of activations: a group's record is taken apart once,
// into a panel of operands, and that meets tiles of 4 columns. Called by superblocks-loops.ts; the order of sums is
// that of superblocks-tiles.ts, and how everything lies is in superblocks-layout.ts.
import { multiplyAdd } from "./arithmetic";
import {
  activationRecordBytes, BLOCKS, hasBits, hasMinimums, runsThrough, scaleBytes, superValueBytes, vectorsOf,
} from "./superblocks-layout";
import {
  addMinimums, addProducts, addStep, bits, blockScale, blockStart, FIRST_STEP, operand, operandBytes, operandExtra,
  operandMask, scaled, stepScale, stepScaleBytes, stepStart,
} from "./superblocks-operands";
import { addScaled } from "./superblocks-tiles";

/** Bytes of a group's operands of one record. */
export const PANEL_BYTES: usize = 1024;
const STEP_BYTES: usize = 64;
const OPERAND_BYTES: usize = 16;

/** Takes a group's record apart: its 64 operands as bytes, in order. */
// @ts-ignore: decorator
@inline
export function unpack(type: i32, products: i32, record: usize, panel: usize): void {
  const stepBytes = <usize>vectorsOf(type) << 4;
  const mask = i32x4.splat(operandMask(type)), extra = operandExtra(type, products);
  let quants = record + BLOCKS * scaleBytes(type);
  const end = panel + PANEL_BYTES;
  while (panel < end) {
    const single = quants + stepBytes * 2;
    let factor = i32x4.splat(FIRST_STEP);
    do {
      const v0 = v128.load(quants), v1 = vectorsOf(type) > 1 ? v128.load(quants, 16) : v0;
      const v2 = vectorsOf(type) > 2 ? v128.load(quants, 32) : v0;
      const high = bits(type, single, factor);
      v128.store(panel, operand(type, 0, v0, v1, v2, high, mask, extra));
      v128.store(panel, operand(type, 1, v0, v1, v2, high, mask, extra), 16);
      v128.store(panel, operand(type, 2, v0, v1, v2, high, mask, extra), 32);
      v128.store(panel, operand(type, 3, v0, v1, v2, high, mask, extra), 48);
      if (hasBits(type)) factor = i16x8.shr_u(factor, 4);
      quants += stepBytes;
      panel += STEP_BYTES;
    } while (quants < single);
    if (hasBits(type)) quants += 16;
  }
}

// @ts-ignore: decorator
@inline
function sumsStart(type: i32, products: i32, sums: usize): v128 {
  return runsThrough(type, products) ? blockStart(type, products, sums, 16) : stepStart(type, products, sums);
}

/**
 * One record of two groups, `gap` and `superGap` apart, whose operands are in two panels one after the other, times 4
 * columns. Adds to what is at y, the groups' rows `below` apart.
 */
// @ts-ignore: decorator
@inline
export function multiplyFour(
  type: i32, products: i32, panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize,
  y: usize, below: usize, stride: usize,
): void {
  const values = <usize>superValueBytes(products), next = operandBytes(products);
  const through = runsThrough(type, products);
  const zero = i32x4.splat(0);
  if (hasMinimums(type)) addFourMinimums(type, products, scales, gap, superScales + 8, superGap, x, y, below, stride);
  let u00 = f32x4.splat(0), u01 = u00, u02 = u00, u03 = u00, u10 = u00, u11 = u00, u12 = u00, u13 = u00;
  const end = scales + BLOCKS * scaleBytes(type);
  do {
    const tail = x + values * 4;
    let s00 = zero, s01 = zero, s02 = zero, s03 = zero, s10 = zero, s11 = zero, s12 = zero, s13 = zero;
    const blockEnd = panel + STEP_BYTES * 2;
    let at = x, sums = tail + 32, part = scales;
    do {
      let a00 = sumsStart(type, products, sums), a01 = sumsStart(type, products, sums + 4);
      let a02 = sumsStart(type, products, sums + 8), a03 = sumsStart(type, products, sums + 12);
      let a10 = a00, a11 = a01, a12 = a02, a13 = a03;
      const stepEnd = panel + (through ? STEP_BYTES * 2 : STEP_BYTES);
      do {
        const v0 = v128.load(panel), v1 = v128.load(panel + PANEL_BYTES);
        let from = at;
        let v = v128.load32_splat(from);
        a00 = addProducts(type, products, v, from, v0, a00); a10 = addProducts(type, products, v, from, v1, a10);
        from = at + values;
        v = v128.load32_splat(from);
        a01 = addProducts(type, products, v, from, v0, a01); a11 = addProducts(type, products, v, from, v1, a11);
        from = at + values * 2;
        v = v128.load32_splat(from);
        a02 = addProducts(type, products, v, from, v0, a02); a12 = addProducts(type, products, v, from, v1, a12);
        from = at + values * 3;
        v = v128.load32_splat(from);
        a03 = addProducts(type, products, v, from, v0, a03); a13 = addProducts(type, products, v, from, v1, a13);
        const w0 = v128.load(panel, 16), w1 = v128.load(panel + PANEL_BYTES, 16);
        from = at + next;
        v = v128.load32_splat(from);
        a00 = addProducts(type, products, v, from, w0, a00); a10 = addProducts(type, products, v, from, w1, a10);
        from = at + next + values;
        v = v128.load32_splat(from);
        a01 = addProducts(type, products, v, from, w0, a01); a11 = addProducts(type, products, v, from, w1, a11);
        from = at + next + values * 2;
        v = v128.load32_splat(from);
        a02 = addProducts(type, products, v, from, w0, a02); a12 = addProducts(type, products, v, from, w1, a12);
        from = at + next + values * 3;
        v = v128.load32_splat(from);
        a03 = addProducts(type, products, v, from, w0, a03); a13 = addProducts(type, products, v, from, w1, a13);
        panel += OPERAND_BYTES * 2;
        at += next * 2;
      } while (panel < stepEnd);
      if (through) {
        s00 = a00; s01 = a01; s02 = a02; s03 = a03; s10 = a10; s11 = a11; s12 = a12; s13 = a13;
      } else {
        const k0 = stepScale(type, products, part), k1 = stepScale(type, products, part + gap);
        s00 = addStep(products, a00, k0, s00); s10 = addStep(products, a10, k1, s10);
        s01 = addStep(products, a01, k0, s01); s11 = addStep(products, a11, k1, s11);
        s02 = addStep(products, a02, k0, s02); s12 = addStep(products, a12, k1, s12);
        s03 = addStep(products, a03, k0, s03); s13 = addStep(products, a13, k1, s13);
        sums += 16;
        part += stepScaleBytes(type, products);
      }
    } while (panel < blockEnd);
    const k0 = blockScale(type, scales), k1 = blockScale(type, scales + gap);
    let k = v128.load32_splat(tail);
    u00 = multiplyAdd(scaled(type, products, s00, k0), k, u00);
    u10 = multiplyAdd(scaled(type, products, s10, k1), k, u10);
    k = v128.load32_splat(tail + 4);
    u01 = multiplyAdd(scaled(type, products, s01, k0), k, u01);
    u11 = multiplyAdd(scaled(type, products, s11, k1), k, u11);
    k = v128.load32_splat(tail + 8);
    u02 = multiplyAdd(scaled(type, products, s02, k0), k, u02);
    u12 = multiplyAdd(scaled(type, products, s12, k1), k, u12);
    k = v128.load32_splat(tail + 12);
    u03 = multiplyAdd(scaled(type, products, s03, k0), k, u03);
    u13 = multiplyAdd(scaled(type, products, s13, k1), k, u13);
    scales += scaleBytes(type);
    x += activationRecordBytes(products, 4);
  } while (scales < end);
  addRow(superScales, superGap, u00, u10, y, below); addRow(superScales, superGap, u01, u11, y + stride, below);
  y += stride * 2;
  addRow(superScales, superGap, u02, u12, y, below); addRow(superScales, superGap, u03, u13, y + stride, below);
}

/** The minimums of multiplyFour(). */
// @ts-ignore: decorator
@inline
function addFourMinimums(
  type: i32, products: i32, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  let m00 = f32x4.splat(0), m01 = m00, m02 = m00, m03 = m00, m10 = m00, m11 = m00, m12 = m00, m13 = m00;
  let tail = x + superValueBytes(products) * 4;
  const end = scales + BLOCKS * scaleBytes(type);
  do {
    const other = scales + gap, sums = tail + 32;
    let k = v128.load32_splat(tail);
    m00 = addMinimums(type, products, scales, sums, 16, k, m00);
    m10 = addMinimums(type, products, other, sums, 16, k, m10);
    k = v128.load32_splat(tail + 4);
    m01 = addMinimums(type, products, scales, sums + 4, 16, k, m01);
    m11 = addMinimums(type, products, other, sums + 4, 16, k, m11);
    k = v128.load32_splat(tail + 8);
    m02 = addMinimums(type, products, scales, sums + 8, 16, k, m02);
    m12 = addMinimums(type, products, other, sums + 8, 16, k, m12);
    k = v128.load32_splat(tail + 12);
    m03 = addMinimums(type, products, scales, sums + 12, 16, k, m03);
    m13 = addMinimums(type, products, other, sums + 12, 16, k, m13);
    scales += scaleBytes(type);
    tail += activationRecordBytes(products, 4);
  } while (scales < end);
  addRow(superScales, superGap, m00, m10, y, below); addRow(superScales, superGap, m01, m11, y + stride, below);
  y += stride * 2;
  addRow(superScales, superGap, m02, m12, y, below); addRow(superScales, superGap, m03, m13, y + stride, below);
}

/** Adds a column's sums of a record, for two groups, to what is at y. */
// @ts-ignore: decorator
@inline
function addRow(superScales: usize, superGap: usize, upper: v128, lower: v128, y: usize, below: usize): void {
  v128.store(y, addScaled(superScales, upper, v128.load(y)));
  v128.store(y + below, addScaled(superScales + superGap, lower, v128.load(y + below)));
}
