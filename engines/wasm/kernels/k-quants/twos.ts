// Inner loop of k-quant products with two columns of activations, in tiles of 16 rows. The rows are read in four
// streams to use the full memory bandwidth. Called by loops.ts. The order of sums is the same as in tiles.ts.
// block-quants/tiles.ts explains why the loops must not be unrolled. layout.ts defines the formats.
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

/** Multiplies four groups of four rows, one group from each quarter of the matrix, by two columns of activations. */
// @ts-expect-error: decorator
@inline
export function multiplyTwo(
  type: i32, products: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, stride: usize,
): void {
  const recordBytes = superRecordBytes(type), superBytes = superScaleBytes(type);
  const apart = <usize>(rows >> 4) * supers, first = <usize>group * supers;
  const gap = apart * recordBytes, superGap = apart * superBytes, below = <usize>rows;
  const mask = keptMask(type, products, x);
  const extra = keptExtra(type, products, x);
  let record = matrix + first * recordBytes;
  let superScales = matrix + <usize>(rows >> 2) * supers * recordBytes + first * superBytes;
  y += <usize>group << 4;
  for (let c: usize = 0; c < 2; c++) {
    for (let g: usize = 0; g < 4; g++) v128.store(y + c * stride + g * below, f32x4.splat(0));
  }
  const end = record + <usize>supers * recordBytes;
  while (record < end) {
    if (hasMinimums(type)) {
      addMinimumsOfTwo(type, products, record, gap, superScales + 8, superGap, x, y, below, stride);
    }
    addProductsOfTwo(type, products, record, gap, superScales, superGap, x, mask, extra, y, below, stride);
    record += recordBytes;
    superScales += superBytes;
    x += activationRecordBytes(products, 2) * BLOCKS;
  }
}

/** Multiplies one super-block of four groups of four rows by two columns of activations, and adds the products to y. */
// @ts-expect-error: decorator
@inline
function addProductsOfTwo(
  type: i32, products: i32, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, mask: v128,
  extra: v128, y: usize, below: usize, stride: usize,
): void {
  const values = <usize>superValueBytes(products), next = operandBytes(products);
  const through = runsThrough(type, products), nibbles = vectorsOf(type) == 2;
  const stepBytes = <usize>vectorsOf(type) << 4, end = scales + BLOCKS * scaleBytes(type);
  let quants = end;
  let u00 = f32x4.splat(0), u01 = u00, u10 = u00, u11 = u00, u20 = u00, u21 = u00, u30 = u00, u31 = u00;
  do {
    const tail = x + values * 2, single = quants + stepBytes * 2;
    let s00 = i32x4.splat(0), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
    let at = x, sums = tail + 16, part = scales;
    let f0 = pairBits(type, single), f1 = pairBits(type, single + gap);
    let f2 = pairBits(type, single + gap * 2), f3 = pairBits(type, single + gap * 3);
    let factor = i32x4.splat(FIRST_STEP);
    do {
      let a00 = sumsStart(type, products, sums, 8), a01 = sumsStart(type, products, sums + 4, 8);
      let a10 = a00, a11 = a01, a20 = a00, a21 = a01, a30 = a00, a31 = a01;
      if (!nibbles) {
        unpackStep(type, quants, single, factor, mask, extra, STEP_SCRATCH);
        unpackStep(type, quants + gap, single + gap, factor, mask, extra, STEP_SCRATCH + 64);
        unpackStep(type, quants + gap * 2, single + gap * 2, factor, mask, extra, STEP_SCRATCH + 128);
        unpackStep(type, quants + gap * 3, single + gap * 3, factor, mask, extra, STEP_SCRATCH + 192);
        if (hasBits(type)) factor = i16x8.shr_u(factor, 4);
      }
      const stepEnd = at + next * (through ? 8 : 4);
      let pair = STEP_SCRATCH;
      do {
        let p0: v128, p1: v128, p2: v128, p3: v128, q0: v128, q1: v128, q2: v128, q3: v128;
        if (nibbles) {
          const w0 = v128.load(quants), w1 = v128.load(quants + gap);
          const w2 = v128.load(quants + gap * 2), w3 = v128.load(quants + gap * 3);
          p0 = pairLow(type, w0, f0, mask, extra); p1 = pairLow(type, w1, f1, mask, extra);
          p2 = pairLow(type, w2, f2, mask, extra); p3 = pairLow(type, w3, f3, mask, extra);
          q0 = pairHigh(type, w0, f0, mask, extra); q1 = pairHigh(type, w1, f1, mask, extra);
          q2 = pairHigh(type, w2, f2, mask, extra); q3 = pairHigh(type, w3, f3, mask, extra);
          f0 = nextPair(type, f0); f1 = nextPair(type, f1);
          f2 = nextPair(type, f2); f3 = nextPair(type, f3);
          quants += 16;
        } else {
          p0 = v128.load(pair); q0 = v128.load(pair, 16);
          p1 = v128.load(pair, 64); q1 = v128.load(pair, 80);
          p2 = v128.load(pair, 128); q2 = v128.load(pair, 144);
          p3 = v128.load(pair, 192); q3 = v128.load(pair, 208);
          pair += 32;
        }
        let from = at;
        let v = v128.load32_splat(from);
        a00 = addProducts(type, products, v, from, p0, a00); a10 = addProducts(type, products, v, from, p1, a10);
        a20 = addProducts(type, products, v, from, p2, a20); a30 = addProducts(type, products, v, from, p3, a30);
        from = at + values;
        v = v128.load32_splat(from);
        a01 = addProducts(type, products, v, from, p0, a01); a11 = addProducts(type, products, v, from, p1, a11);
        a21 = addProducts(type, products, v, from, p2, a21); a31 = addProducts(type, products, v, from, p3, a31);
        from = at + next;
        v = v128.load32_splat(from);
        a00 = addProducts(type, products, v, from, q0, a00); a10 = addProducts(type, products, v, from, q1, a10);
        a20 = addProducts(type, products, v, from, q2, a20); a30 = addProducts(type, products, v, from, q3, a30);
        from = at + next + values;
        v = v128.load32_splat(from);
        a01 = addProducts(type, products, v, from, q0, a01); a11 = addProducts(type, products, v, from, q1, a11);
        a21 = addProducts(type, products, v, from, q2, a21); a31 = addProducts(type, products, v, from, q3, a31);
        at += next * 2;
      } while (at < stepEnd);
      if (!nibbles) quants += stepBytes;
      const k0 = stepScale(type, products, part), k1 = stepScale(type, products, part + gap);
      const k2 = stepScale(type, products, part + gap * 2), k3 = stepScale(type, products, part + gap * 3);
      s00 = addStep(products, a00, k0, s00); s10 = addStep(products, a10, k1, s10);
      s20 = addStep(products, a20, k2, s20); s30 = addStep(products, a30, k3, s30);
      s01 = addStep(products, a01, k0, s01); s11 = addStep(products, a11, k1, s11);
      s21 = addStep(products, a21, k2, s21); s31 = addStep(products, a31, k3, s31);
      sums += 8;
      part += stepScaleBytes(type, products);
    } while (!through && quants < single);
    let k = v128.load32_splat(tail);
    u00 = multiplyAdd(inFloats(products, s00), k, u00); u10 = multiplyAdd(inFloats(products, s10), k, u10);
    u20 = multiplyAdd(inFloats(products, s20), k, u20); u30 = multiplyAdd(inFloats(products, s30), k, u30);
    k = v128.load32_splat(tail + 4);
    u01 = multiplyAdd(inFloats(products, s01), k, u01); u11 = multiplyAdd(inFloats(products, s11), k, u11);
    u21 = multiplyAdd(inFloats(products, s21), k, u21); u31 = multiplyAdd(inFloats(products, s31), k, u31);
    if (hasBits(type)) quants += 16;
    scales += scaleBytes(type);
    x += activationRecordBytes(products, 2);
  } while (scales < end);
  addRows(superScales, superGap, u00, u10, y, below);
  addRows(superScales + superGap * 2, superGap, u20, u30, y + below * 2, below);
  addRows(superScales, superGap, u01, u11, y + stride, below);
  addRows(superScales + superGap * 2, superGap, u21, u31, y + stride + below * 2, below);
}

/** Adds the mins of one super-block of four groups of four rows, times the sums of two columns of activations, to y. */
// @ts-expect-error: decorator
@inline
function addMinimumsOfTwo(
  type: i32, products: i32, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  let m00 = f32x4.splat(0), m01 = m00, m10 = m00, m11 = m00, m20 = m00, m21 = m00, m30 = m00, m31 = m00;
  let tail = x + superValueBytes(products) * 2;
  const end = scales + BLOCKS * scaleBytes(type);
  do {
    const sums = tail + 16;
    let k = v128.load32_splat(tail);
    m00 = addMinimums(type, products, scales, sums, 8, k, m00);
    m10 = addMinimums(type, products, scales + gap, sums, 8, k, m10);
    m20 = addMinimums(type, products, scales + gap * 2, sums, 8, k, m20);
    m30 = addMinimums(type, products, scales + gap * 3, sums, 8, k, m30);
    k = v128.load32_splat(tail + 4);
    m01 = addMinimums(type, products, scales, sums + 4, 8, k, m01);
    m11 = addMinimums(type, products, scales + gap, sums + 4, 8, k, m11);
    m21 = addMinimums(type, products, scales + gap * 2, sums + 4, 8, k, m21);
    m31 = addMinimums(type, products, scales + gap * 3, sums + 4, 8, k, m31);
    scales += scaleBytes(type);
    tail += activationRecordBytes(products, 2);
  } while (scales < end);
  addRows(superScales, superGap, m00, m10, y, below);
  addRows(superScales + superGap * 2, superGap, m20, m30, y + below * 2, below);
  addRows(superScales, superGap, m01, m11, y + stride, below);
  addRows(superScales + superGap * 2, superGap, m21, m31, y + stride + below * 2, below);
}
