// Inner loops of block-quant products. A tile has 8 rows of the matrix and 4 columns of activations, or 16 rows and 1
// or 2 columns. loops.ts calls these functions for each tile. They determine the engine's speed. layout.ts defines the
// operand formats.
//
// All tiles sum a block exactly, in integers, and add blocks to a row's total in the same order. Therefore, the results
// of a column do not depend on the number of columns in the product.
//
// The loop over a block's vectors must not be unrolled. If it is unrolled, the optimiser moves all loads before the
// sums, and V8 spills registers to the stack. A tile has at most 8 sums, because 16 vector registers have no room for
// more sums and the operands.

import { Q8_0 } from "../types";
import {
  fifthBytes,
  HALF_FACTOR,
  HALF_MASK,
  hasMinimums,
  MINIMUMS_AT,
  PAIRS,
  quantBytes,
  recordBytes,
  scalesBytes,
  valueBytes,
} from "./layout";
import {
  add,
  addFour,
  fifths,
  finish,
  loadHalves,
  loadScales,
  nextFifths,
  opaque,
  part,
  partAid,
  partMask,
  parts,
  start,
  valuesOf,
} from "./operands";

/**
 * Multiplies two groups of four rows, one from each half of the matrix, by 4 columns of activations. This tile shape
 * makes the best use of 16 vector registers.
 */
// @ts-expect-error: decorator
@inline
export function tileOf4(
  type: i32,
  products: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
  stride: i32,
): void {
  const values = <usize>valueBytes(products), step: usize = products == PAIRS ? 8 : 4;
  const bytes = <usize>quantBytes(type) << 2;
  const apart = <usize>(rows >> 3) * blocks;
  const gap = apart * bytes, scalesGap = apart * scalesBytes(type);
  const mask = partMask(type, products, x), aid = partAid(type, products, x);
  const halfMask = i32x4.splat(HALF_MASK), halfFactor = i32x4.splat(HALF_FACTOR);
  let quants = matrix + <usize>group * blocks * bytes;
  let scales = matrix + <usize>rows * blocks * quantBytes(type) + <usize>group * blocks * scalesBytes(type);
  let t00 = f32x4.splat(0), t01 = t00, t02 = t00, t03 = t00, t10 = t00, t11 = t00, t12 = t00, t13 = t00;
  for (let b = 0; b < blocks; b++) {
    const tail = x + values * 4;
    let s00 = start(type, products, tail + 16), s01 = start(type, products, tail + 20);
    let s02 = start(type, products, tail + 24), s03 = start(type, products, tail + 28);
    let s10 = s00, s11 = s01, s12 = s02, s13 = s03;
    let f0 = fifths(type, quants), f1 = fifths(type, quants + gap);
    const end = quants + bytes;
    quants += fifthBytes(type) << 2;
    let at = x;
    do {
      let v: v128;
      const w0 = v128.load(quants), w1 = v128.load(quants + gap);
      const a0 = part(type, products, 0, w0, f0, mask, aid), a1 = part(type, products, 0, w1, f1, mask, aid);
      v = v128.load32_splat(at); s00 = add(products, v, a0, s00); s10 = add(products, v, a1, s10);
      v = v128.load32_splat(at + values); s01 = add(products, v, a0, s01); s11 = add(products, v, a1, s11);
      v = v128.load32_splat(at + values * 2); s02 = add(products, v, a0, s02); s12 = add(products, v, a1, s12);
      v = v128.load32_splat(at + values * 3); s03 = add(products, v, a0, s03); s13 = add(products, v, a1, s13);
      if (parts(type, products) > 1) {
        const b0 = part(type, products, 1, w0, f0, mask, aid), b1 = part(type, products, 1, w1, f1, mask, aid);
        const bt = at + valuesOf(type, products, 1);
        v = v128.load32_splat(bt); s00 = add(products, v, b0, s00); s10 = add(products, v, b1, s10);
        v = v128.load32_splat(bt + values); s01 = add(products, v, b0, s01); s11 = add(products, v, b1, s11);
        v = v128.load32_splat(bt + values * 2); s02 = add(products, v, b0, s02); s12 = add(products, v, b1, s12);
        v = v128.load32_splat(bt + values * 3); s03 = add(products, v, b0, s03); s13 = add(products, v, b1, s13);
      }
      if (parts(type, products) > 2) {
        const c0 = part(type, products, 2, w0, f0, mask, aid), c1 = part(type, products, 2, w1, f1, mask, aid);
        const ct = at + valuesOf(type, products, 2);
        v = v128.load32_splat(ct); s00 = add(products, v, c0, s00); s10 = add(products, v, c1, s10);
        v = v128.load32_splat(ct + values); s01 = add(products, v, c0, s01); s11 = add(products, v, c1, s11);
        v = v128.load32_splat(ct + values * 2); s02 = add(products, v, c0, s02); s12 = add(products, v, c1, s12);
        v = v128.load32_splat(ct + values * 3); s03 = add(products, v, c0, s03); s13 = add(products, v, c1, s13);
        const d0 = part(type, products, 3, w0, f0, mask, aid), d1 = part(type, products, 3, w1, f1, mask, aid);
        const dt = at + valuesOf(type, products, 3);
        v = v128.load32_splat(dt); s00 = add(products, v, d0, s00); s10 = add(products, v, d1, s10);
        v = v128.load32_splat(dt + values); s01 = add(products, v, d0, s01); s11 = add(products, v, d1, s11);
        v = v128.load32_splat(dt + values * 2); s02 = add(products, v, d0, s02); s12 = add(products, v, d1, s12);
        v = v128.load32_splat(dt + values * 3); s03 = add(products, v, d0, s03); s13 = add(products, v, d1, s13);
      }
      f0 = nextFifths(type, f0, 1); f1 = nextFifths(type, f1, 1);
      quants += 16;
      at += step;
    } while (quants < end);
    const k0 = loadScales(type, scales, halfMask, halfFactor);
    const k1 = loadScales(type, scales + scalesGap, halfMask, halfFactor);
    const m0 = hasMinimums(type) ? loadHalves(scales + MINIMUMS_AT, halfMask, halfFactor) : k0;
    const m1 = hasMinimums(type) ? loadHalves(scales + MINIMUMS_AT + scalesGap, halfMask, halfFactor) : k1;
    let k: v128, o: v128;
    k = v128.load32_splat(tail); o = v128.load32_splat(tail + 16);
    t00 = finish(type, products, s00, k0, m0, k, o, t00); t10 = finish(type, products, s10, k1, m1, k, o, t10);
    k = v128.load32_splat(tail + 4); o = v128.load32_splat(tail + 20);
    t01 = finish(type, products, s01, k0, m0, k, o, t01); t11 = finish(type, products, s11, k1, m1, k, o, t11);
    k = v128.load32_splat(tail + 8); o = v128.load32_splat(tail + 24);
    t02 = finish(type, products, s02, k0, m0, k, o, t02); t12 = finish(type, products, s12, k1, m1, k, o, t12);
    k = v128.load32_splat(tail + 12); o = v128.load32_splat(tail + 28);
    t03 = finish(type, products, s03, k0, m0, k, o, t03); t13 = finish(type, products, s13, k1, m1, k, o, t13);
    x += recordBytes(products, 4);
    scales += scalesBytes(type);
  }
  y += <usize>group << 4;
  const below = y + (<usize>rows << 1);
  v128.store(y, t00); v128.store(below, t10);
  v128.store(y + stride, t01); v128.store(below + stride, t11);
  v128.store(y + stride * 2, t02); v128.store(below + stride * 2, t12);
  v128.store(y + stride * 3, t03); v128.store(below + stride * 3, t13);
}

/**
 * Multiplies four groups of four rows, one from each quarter of the matrix, by 2 columns of activations. Four streams
 * of reads use more of the memory bandwidth than one stream.
 */
// @ts-expect-error: decorator
@inline
export function tileOf2(
  type: i32,
  products: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
  stride: i32,
): void {
  const values = <usize>valueBytes(products), step: usize = products == PAIRS ? 8 : 4;
  const bytes = <usize>quantBytes(type) << 2;
  const apart = <usize>(rows >> 4) * blocks;
  const gap = apart * bytes, scalesGap = apart * scalesBytes(type);
  const mask = partMask(type, products, x), aid = partAid(type, products, x);
  const halfMask = i32x4.splat(HALF_MASK), halfFactor = i32x4.splat(HALF_FACTOR);
  let quants = matrix + <usize>group * blocks * bytes;
  let scales = matrix + <usize>rows * blocks * quantBytes(type) + <usize>group * blocks * scalesBytes(type);
  let t00 = f32x4.splat(0), t10 = t00, t20 = t00, t30 = t00, t01 = t00, t11 = t00, t21 = t00, t31 = t00;
  for (let b = 0; b < blocks; b++) {
    const tail = x + values * 2;
    let s00 = start(type, products, tail + 8), s10 = s00, s20 = s00, s30 = s00;
    let s01 = start(type, products, tail + 12), s11 = s01, s21 = s01, s31 = s01;
    let f0 = fifths(type, quants), f1 = fifths(type, quants + gap);
    let f2 = fifths(type, quants + gap * 2), f3 = fifths(type, quants + gap * 3);
    const end = quants + bytes;
    quants += fifthBytes(type) << 2;
    let at = x;
    do {
      let v: v128;
      const w0 = v128.load(quants), w1 = v128.load(quants + gap);
      const w2 = v128.load(quants + gap * 2), w3 = v128.load(quants + gap * 3);
      const a0 = part(type, products, 0, w0, f0, mask, aid), a1 = part(type, products, 0, w1, f1, mask, aid);
      const a2 = part(type, products, 0, w2, f2, mask, aid), a3 = part(type, products, 0, w3, f3, mask, aid);
      v = v128.load32_splat(at);
      s00 = add(products, v, a0, s00); s10 = add(products, v, a1, s10);
      s20 = add(products, v, a2, s20); s30 = add(products, v, a3, s30);
      v = v128.load32_splat(at + values);
      s01 = add(products, v, a0, s01); s11 = add(products, v, a1, s11);
      s21 = add(products, v, a2, s21); s31 = add(products, v, a3, s31);
      if (parts(type, products) > 1) {
        const b0 = part(type, products, 1, w0, f0, mask, aid), b1 = part(type, products, 1, w1, f1, mask, aid);
        const b2 = part(type, products, 1, w2, f2, mask, aid), b3 = part(type, products, 1, w3, f3, mask, aid);
        const bt = at + valuesOf(type, products, 1);
        v = v128.load32_splat(bt);
        s00 = add(products, v, b0, s00); s10 = add(products, v, b1, s10);
        s20 = add(products, v, b2, s20); s30 = add(products, v, b3, s30);
        v = v128.load32_splat(bt + values);
        s01 = add(products, v, b0, s01); s11 = add(products, v, b1, s11);
        s21 = add(products, v, b2, s21); s31 = add(products, v, b3, s31);
      }
      if (parts(type, products) > 2) {
        const c0 = part(type, products, 2, w0, f0, mask, aid), c1 = part(type, products, 2, w1, f1, mask, aid);
        const c2 = part(type, products, 2, w2, f2, mask, aid), c3 = part(type, products, 2, w3, f3, mask, aid);
        const ct = at + valuesOf(type, products, 2);
        v = v128.load32_splat(ct);
        s00 = add(products, v, c0, s00); s10 = add(products, v, c1, s10);
        s20 = add(products, v, c2, s20); s30 = add(products, v, c3, s30);
        v = v128.load32_splat(ct + values);
        s01 = add(products, v, c0, s01); s11 = add(products, v, c1, s11);
        s21 = add(products, v, c2, s21); s31 = add(products, v, c3, s31);
        const d0 = part(type, products, 3, w0, f0, mask, aid), d1 = part(type, products, 3, w1, f1, mask, aid);
        const d2 = part(type, products, 3, w2, f2, mask, aid), d3 = part(type, products, 3, w3, f3, mask, aid);
        const dt = at + valuesOf(type, products, 3);
        v = v128.load32_splat(dt);
        s00 = add(products, v, d0, s00); s10 = add(products, v, d1, s10);
        s20 = add(products, v, d2, s20); s30 = add(products, v, d3, s30);
        v = v128.load32_splat(dt + values);
        s01 = add(products, v, d0, s01); s11 = add(products, v, d1, s11);
        s21 = add(products, v, d2, s21); s31 = add(products, v, d3, s31);
      }
      f0 = nextFifths(type, f0, 1); f1 = nextFifths(type, f1, 1);
      f2 = nextFifths(type, f2, 1); f3 = nextFifths(type, f3, 1);
      quants += 16;
      at += step;
    } while (quants < end);
    let k = v128.load32_splat(tail), o = v128.load32_splat(tail + 8);
    const k0 = loadScales(type, scales, halfMask, halfFactor);
    const k1 = loadScales(type, scales + scalesGap, halfMask, halfFactor);
    const k2 = loadScales(type, scales + scalesGap * 2, halfMask, halfFactor);
    const k3 = loadScales(type, scales + scalesGap * 3, halfMask, halfFactor);
    const least = scales + MINIMUMS_AT;
    const m0 = hasMinimums(type) ? loadHalves(least, halfMask, halfFactor) : k0;
    const m1 = hasMinimums(type) ? loadHalves(least + scalesGap, halfMask, halfFactor) : k1;
    const m2 = hasMinimums(type) ? loadHalves(least + scalesGap * 2, halfMask, halfFactor) : k2;
    const m3 = hasMinimums(type) ? loadHalves(least + scalesGap * 3, halfMask, halfFactor) : k3;
    t00 = finish(type, products, s00, k0, m0, k, o, t00); t10 = finish(type, products, s10, k1, m1, k, o, t10);
    t20 = finish(type, products, s20, k2, m2, k, o, t20); t30 = finish(type, products, s30, k3, m3, k, o, t30);
    k = v128.load32_splat(tail + 4); o = v128.load32_splat(tail + 12);
    t01 = finish(type, products, s01, k0, m0, k, o, t01); t11 = finish(type, products, s11, k1, m1, k, o, t11);
    t21 = finish(type, products, s21, k2, m2, k, o, t21); t31 = finish(type, products, s31, k3, m3, k, o, t31);
    x += recordBytes(products, 2);
    scales += scalesBytes(type);
  }
  y += <usize>group << 4;
  v128.store(y, t00); v128.store(y + rows, t10); v128.store(y + (rows << 1), t20); v128.store(y + rows * 3, t30);
  y += stride;
  v128.store(y, t01); v128.store(y + rows, t11); v128.store(y + (rows << 1), t21); v128.store(y + rows * 3, t31);
}

/**
 * Multiplies four groups of four rows, one from each quarter of the matrix, by one column of activations. Four streams
 * of reads use more of the memory bandwidth than one stream.
 */
// @ts-expect-error: decorator
@inline
export function tileOf1(
  type: i32,
  products: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
): void {
  const values = <usize>valueBytes(products);
  const bytes = <usize>quantBytes(type) << 2;
  const vectors = 4 / parts(type, products), step = <usize>vectors << 4;
  const valuesStep: usize = type != Q8_0 ? 8 : 16;
  const x1At: usize = type != Q8_0 && products != PAIRS ? 16 : 4;
  const x2At: usize = type != Q8_0 ? (products != PAIRS ? 4 : 32) : 8;
  const x3At: usize = x1At + x2At;
  const apart = <usize>(rows >> 4) * blocks;
  const gap = apart * bytes, scalesGap = apart * scalesBytes(type);
  const mask = partMask(type, products, x), aid = partAid(type, products, x);
  const halfMask = opaque(products, HALF_MASK, x), halfFactor = opaque(products, HALF_FACTOR, x);
  let quants = matrix + <usize>group * blocks * bytes;
  let scales = matrix + <usize>rows * blocks * quantBytes(type) + <usize>group * blocks * scalesBytes(type);
  let t0 = f32x4.splat(0), t1 = t0, t2 = t0, t3 = t0;
  for (let b = 0; b < blocks; b++) {
    const tail = x + values;
    let s0 = start(type, products, tail + 4), s1 = s0, s2 = s0, s3 = s0;
    let f0 = fifths(type, quants), f1 = fifths(type, quants + gap);
    let f2 = fifths(type, quants + gap * 2), f3 = fifths(type, quants + gap * 3);
    const end = quants + bytes;
    quants += fifthBytes(type) << 2;
    let at = x;
    do {
      const x0 = v128.load32_splat(at), x1 = v128.load32_splat(at + x1At);
      const x2 = v128.load32_splat(at + x2At), x3 = v128.load32_splat(at + x3At);
      s0 = addFour(type, products, x0, x1, x2, x3, quants, f0, mask, aid, s0);
      s1 = addFour(type, products, x0, x1, x2, x3, quants + gap, f1, mask, aid, s1);
      s2 = addFour(type, products, x0, x1, x2, x3, quants + gap * 2, f2, mask, aid, s2);
      s3 = addFour(type, products, x0, x1, x2, x3, quants + gap * 3, f3, mask, aid, s3);
      f0 = nextFifths(type, f0, vectors); f1 = nextFifths(type, f1, vectors);
      f2 = nextFifths(type, f2, vectors); f3 = nextFifths(type, f3, vectors);
      quants += step;
      at += valuesStep;
    } while (quants < end);
    const k = v128.load32_splat(tail), o = v128.load32_splat(tail + 4);
    const k0 = loadScales(type, scales, halfMask, halfFactor);
    const k1 = loadScales(type, scales + scalesGap, halfMask, halfFactor);
    const k2 = loadScales(type, scales + scalesGap * 2, halfMask, halfFactor);
    const k3 = loadScales(type, scales + scalesGap * 3, halfMask, halfFactor);
    const least = scales + MINIMUMS_AT;
    const m0 = hasMinimums(type) ? loadHalves(least, halfMask, halfFactor) : k0;
    const m1 = hasMinimums(type) ? loadHalves(least + scalesGap, halfMask, halfFactor) : k1;
    const m2 = hasMinimums(type) ? loadHalves(least + scalesGap * 2, halfMask, halfFactor) : k2;
    const m3 = hasMinimums(type) ? loadHalves(least + scalesGap * 3, halfMask, halfFactor) : k3;
    t0 = finish(type, products, s0, k0, m0, k, o, t0); t1 = finish(type, products, s1, k1, m1, k, o, t1);
    t2 = finish(type, products, s2, k2, m2, k, o, t2); t3 = finish(type, products, s3, k3, m3, k, o, t3);
    x += recordBytes(products, 1);
    scales += scalesBytes(type);
  }
  y += <usize>group << 4;
  v128.store(y, t0); v128.store(y + rows, t1); v128.store(y + (rows << 1), t2); v128.store(y + rows * 3, t3);
}
