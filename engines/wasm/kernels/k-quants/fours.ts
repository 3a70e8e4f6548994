// Inner loop of k-quant products with four columns of activations, in tiles of 8 rows. This loop determines the speed
// of prefill and of large batches with k-quant models. Called by loops.ts. The order of sums is the same as in
// tiles.ts. layout.ts defines the formats.
//
// block-quants/tiles.ts explains why the loops must not be unrolled. Between records, the rows' totals are stored in
// memory, because registers have no room for totals and a record's sums.
import { multiplyAdd } from "../arithmetic";
import {
  activationRecordBytes, BLOCKS, hasBits, hasMinimums, runsThrough, STEP_SCRATCH, scaleBytes, superRecordBytes,
  superScaleBytes, superValueBytes, vectorsOf,
} from "./layout";
import {
  addMinimums, addProducts, addStep, FIRST_STEP, inFloats, keptExtra, keptMask, nextPair, operandBytes, pairBits,
  pairHigh, pairLow, stepScale, stepScaleBytes, sumsStart,
} from "./operands";
import { unpackStep } from "./panels";
import { addRows } from "./tiles";

/** Multiplies two groups of four rows, one group from each half of the matrix, by four columns of activations. */
// @ts-expect-error: decorator
@inline
export function multiplyFour(
  type: i32, products: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, stride: usize,
): void {
  const recordBytes = superRecordBytes(type), superBytes = superScaleBytes(type);
  const apart = <usize>(rows >> 3) * supers, first = <usize>group * supers;
  const gap = apart * recordBytes, superGap = apart * superBytes, below = <usize>rows << 1;
  const mask = keptMask(type, products, x);
  const extra = keptExtra(type, products, x);
  let record = matrix + first * recordBytes;
  let superScales = matrix + <usize>(rows >> 2) * supers * recordBytes + first * superBytes;
  y += <usize>group << 4;
  for (let c: usize = 0; c < 4; c++) {
    for (let g: usize = 0; g < 2; g++) v128.store(y + c * stride + g * below, f32x4.splat(0));
  }
  const end = record + <usize>supers * recordBytes;
  while (record < end) {
    if (hasMinimums(type)) {
      addMinimumsOfFour(type, products, record, gap, superScales + 8, superGap, x, y, below, stride);
    }
    addProductsOfFour(type, products, record, gap, superScales, superGap, x, mask, extra, y, below, stride);
    record += recordBytes;
    superScales += superBytes;
    x += activationRecordBytes(products, 4) * BLOCKS;
  }
}

/** Multiplies one super-block of two groups of four rows by four columns of activations, and adds the products to y. */
// @ts-expect-error: decorator
@inline
function addProductsOfFour(
  type: i32, products: i32, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, mask: v128,
  extra: v128, y: usize, below: usize, stride: usize,
): void {
  const values = <usize>superValueBytes(products), next = operandBytes(products);
  const through = runsThrough(type, products), nibbles = vectorsOf(type) == 2;
  const stepBytes = <usize>vectorsOf(type) << 4, end = scales + BLOCKS * scaleBytes(type);
  let quants = end;
  let u00 = f32x4.splat(0), u01 = u00, u02 = u00, u03 = u00, u10 = u00, u11 = u00, u12 = u00, u13 = u00;
  do {
    const tail = x + values * 4, single = quants + stepBytes * 2;
    let s00 = i32x4.splat(0), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
    let at = x, sums = tail + 32, part = scales;
    let f0 = pairBits(type, single), f1 = pairBits(type, single + gap);
    let factor = i32x4.splat(FIRST_STEP);
    do {
      let a00 = sumsStart(type, products, sums, 16), a01 = sumsStart(type, products, sums + 4, 16);
      let a02 = sumsStart(type, products, sums + 8, 16), a03 = sumsStart(type, products, sums + 12, 16);
      let a10 = a00, a11 = a01, a12 = a02, a13 = a03;
      if (!nibbles) {
        unpackStep(type, quants, single, factor, mask, extra, STEP_SCRATCH);
        unpackStep(type, quants + gap, single + gap, factor, mask, extra, STEP_SCRATCH + 64);
        if (hasBits(type)) factor = i16x8.shr_u(factor, 4);
      }
      const stepEnd = at + next * (through ? 8 : 4);
      let pair = STEP_SCRATCH;
      do {
        let p0: v128, p1: v128, q0: v128, q1: v128;
        if (nibbles) {
          const w0 = v128.load(quants), w1 = v128.load(quants + gap);
          p0 = pairLow(type, w0, f0, mask, extra); p1 = pairLow(type, w1, f1, mask, extra);
          q0 = pairHigh(type, w0, f0, mask, extra); q1 = pairHigh(type, w1, f1, mask, extra);
          f0 = nextPair(type, f0); f1 = nextPair(type, f1);
          quants += 16;
        } else {
          p0 = v128.load(pair); q0 = v128.load(pair, 16);
          p1 = v128.load(pair, 64); q1 = v128.load(pair, 80);
          pair += 32;
        }
        let from = at;
        let v = v128.load32_splat(from);
        a00 = addProducts(type, products, v, from, p0, a00); a10 = addProducts(type, products, v, from, p1, a10);
        from = at + values;
        v = v128.load32_splat(from);
        a01 = addProducts(type, products, v, from, p0, a01); a11 = addProducts(type, products, v, from, p1, a11);
        from = at + values * 2;
        v = v128.load32_splat(from);
        a02 = addProducts(type, products, v, from, p0, a02); a12 = addProducts(type, products, v, from, p1, a12);
        from = at + values * 3;
        v = v128.load32_splat(from);
        a03 = addProducts(type, products, v, from, p0, a03); a13 = addProducts(type, products, v, from, p1, a13);
        from = at + next;
        v = v128.load32_splat(from);
        a00 = addProducts(type, products, v, from, q0, a00); a10 = addProducts(type, products, v, from, q1, a10);
        from = at + next + values;
        v = v128.load32_splat(from);
        a01 = addProducts(type, products, v, from, q0, a01); a11 = addProducts(type, products, v, from, q1, a11);
        from = at + next + values * 2;
        v = v128.load32_splat(from);
        a02 = addProducts(type, products, v, from, q0, a02); a12 = addProducts(type, products, v, from, q1, a12);
        from = at + next + values * 3;
        v = v128.load32_splat(from);
        a03 = addProducts(type, products, v, from, q0, a03); a13 = addProducts(type, products, v, from, q1, a13);
        at += next * 2;
      } while (at < stepEnd);
      if (!nibbles) quants += stepBytes;
      const k0 = stepScale(type, products, part), k1 = stepScale(type, products, part + gap);
      s00 = addStep(products, a00, k0, s00); s10 = addStep(products, a10, k1, s10);
      s01 = addStep(products, a01, k0, s01); s11 = addStep(products, a11, k1, s11);
      s02 = addStep(products, a02, k0, s02); s12 = addStep(products, a12, k1, s12);
      s03 = addStep(products, a03, k0, s03); s13 = addStep(products, a13, k1, s13);
      sums += 16;
      part += stepScaleBytes(type, products);
    } while (!through && quants < single);
    let k = v128.load32_splat(tail);
    u00 = multiplyAdd(inFloats(products, s00), k, u00); u10 = multiplyAdd(inFloats(products, s10), k, u10);
    k = v128.load32_splat(tail + 4);
    u01 = multiplyAdd(inFloats(products, s01), k, u01); u11 = multiplyAdd(inFloats(products, s11), k, u11);
    k = v128.load32_splat(tail + 8);
    u02 = multiplyAdd(inFloats(products, s02), k, u02); u12 = multiplyAdd(inFloats(products, s12), k, u12);
    k = v128.load32_splat(tail + 12);
    u03 = multiplyAdd(inFloats(products, s03), k, u03); u13 = multiplyAdd(inFloats(products, s13), k, u13);
    if (hasBits(type)) quants += 16;
    scales += scaleBytes(type);
    x += activationRecordBytes(products, 4);
  } while (scales < end);
  addRows(superScales, superGap, u00, u10, y, below);
  addRows(superScales, superGap, u01, u11, y + stride, below);
  addRows(superScales, superGap, u02, u12, y + stride * 2, below);
  addRows(superScales, superGap, u03, u13, y + stride * 3, below);
}

/** Adds the mins of one super-block of two groups of four rows, times the sums of four columns of activations, to y. */
// @ts-expect-error: decorator
@inline
function addMinimumsOfFour(
  type: i32, products: i32, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  let m00 = f32x4.splat(0), m01 = m00, m02 = m00, m03 = m00, m10 = m00, m11 = m00, m12 = m00, m13 = m00;
  let tail = x + superValueBytes(products) * 4;
  const end = scales + BLOCKS * scaleBytes(type);
  do {
    const sums = tail + 32;
    let k = v128.load32_splat(tail);
    m00 = addMinimums(type, products, scales, sums, 16, k, m00);
    m10 = addMinimums(type, products, scales + gap, sums, 16, k, m10);
    k = v128.load32_splat(tail + 4);
    m01 = addMinimums(type, products, scales, sums + 4, 16, k, m01);
    m11 = addMinimums(type, products, scales + gap, sums + 4, 16, k, m11);
    k = v128.load32_splat(tail + 8);
    m02 = addMinimums(type, products, scales, sums + 8, 16, k, m02);
    m12 = addMinimums(type, products, scales + gap, sums + 8, 16, k, m12);
    k = v128.load32_splat(tail + 12);
    m03 = addMinimums(type, products, scales, sums + 12, 16, k, m03);
    m13 = addMinimums(type, products, scales + gap, sums + 12, 16, k, m13);
    scales += scaleBytes(type);
    tail += activationRecordBytes(products, 4);
  } while (scales < end);
  addRows(superScales, superGap, m00, m10, y, below);
  addRows(superScales, superGap, m01, m11, y + stride, below);
  addRows(superScales, superGap, m02, m12, y + stride * 2, below);
  addRows(superScales, superGap, m03, m13, y + stride * 3, below);
}
