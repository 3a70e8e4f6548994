// Row packing and row reading for super-blocks. Rows of a GGUF file are packed into a matrix in the format of layout.ts
// when the model is loaded. Single rows are unpacked to floats to look up token embeddings.
import { HALF_FACTOR, HALF_MASK } from "../block-quants/layout";
import { IQ4_XS, Q2_K, Q3_K, Q6_K } from "../types";
import { fileSuperBytes, fileSuperScaleAt, takeApart } from "./file";
import {BLOCKS, 
  blockBytes, hasBits, hasHalves, hasMinimums, NARROW, PANEL, SUPER, scaleBytes, superProducts,
  superRecordBytes, superScaleBytes, vectorsOf, WIDE,
} from "./layout";
import { unpackGroup } from "./loops";

const ROWS: i32 = 4;
const HALF_EXPONENT: i32 = 0x7c00;
// Scratch memory of a call: an unpacked super-block of each of four rows, their scales, and the eight operands of a
// block.
const QUANTS: usize = PANEL;
const SCALES: usize = QUANTS + 1024;
const OPERANDS: usize = SCALES + 64;

export function matrixBytes(type: i32, rows: i32, k: i32): i32 {
  return (rows / ROWS) * (k / SUPER) * (superRecordBytes(type) + superScaleBytes(type));
}

export function packRows(type: i32, source: usize, target: usize, firstRow: i32, count: i32, rows: i32, k: i32): i32 {
  const supers = k / SUPER;
  const rowBytes = <usize>supers * fileSuperBytes(type);
  for (let row = 0; row < count; row++) {
    if (!hasFiniteScales(type, source + <usize>row * rowBytes, supers)) return row + 1;
  }
  const end = (count + 15) & ~15;
  for (let row = 0; row < end; row += ROWS) {
    const group = <usize>((firstRow + row) / ROWS) * supers;
    let record = target + group * superRecordBytes(type);
    let superScales = target + <usize>(rows / ROWS) * supers * superRecordBytes(type) + group * superScaleBytes(type);
    // Rows after the last row (up to a multiple of 16) get scales of zero, so all their weights are zero.
    const existing = min(max(count - row, 0), ROWS);
    if (existing < ROWS) memory.fill(QUANTS, 0, OPERANDS - QUANTS);
    for (let s = 0; s < supers; s++) {
      v128.store64_lane(superScales, i32x4.splat(0), 0);
      if (hasMinimums(type)) v128.store64_lane(superScales + 8, i32x4.splat(0), 0);
      for (let r = 0; r < existing; r++) {
        const block = source + <usize>(row + r) * rowBytes + s * fileSuperBytes(type);
        takeApart(type, block, QUANTS + (r << 8), SCALES + (r << 4));
        const halves = block + fileSuperScaleAt(type);
        store<u16>(superScales + (r << 1), load<u16>(halves));
        if (hasMinimums(type)) store<u16>(superScales + (r << 1) + 8, load<u16>(halves, 2));
      }
      packRecord(type, record);
      record += superRecordBytes(type);
      superScales += superScaleBytes(type);
    }
  }
  return 0;
}

function hasFiniteScales(type: i32, row: usize, supers: i32): bool {
  row += fileSuperScaleAt(type);
  for (let s = 0; s < supers; s++) {
    if ((load<u16>(row) & HALF_EXPONENT) == HALF_EXPONENT) return false;
    if (hasMinimums(type) && (load<u16>(row, 2) & HALF_EXPONENT) == HALF_EXPONENT) return false;
    row += fileSuperBytes(type);
  }
  return true;
}

/** Packs one record (a super-block of four rows) from the unpacked rows in scratch memory. */
function packRecord(type: i32, record: usize): void {
  const narrow = superProducts(type) == NARROW;
  let quants = record + BLOCKS * scaleBytes(type);
  for (let b = 0; b < BLOCKS; b++) {
    packScales(type, b, record + b * scaleBytes(type));
    for (let half = 0; half < 2; half++) {
      const from = QUANTS + (b << 5);
      transpose(
        sixteenQuants(narrow, half, from),
        sixteenQuants(narrow, half, from + 256),
        sixteenQuants(narrow, half, from + 512),
        sixteenQuants(narrow, half, from + 768),
        OPERANDS + (half << 6),
      );
    }
    packStep(type, OPERANDS, quants);
    packStep(type, OPERANDS + 64, quants + (vectorsOf(type) << 4));
    if (hasBits(type)) v128.store(quants + (vectorsOf(type) << 5), singleBits(type == Q3_K ? 2 : 4));
    quants += blockBytes(type);
  }
}

function packScales(type: i32, block: i32, out: usize): void {
  const apart = hasHalves(type) && superProducts(type) != NARROW;
  for (let r = 0; r < ROWS; r++) {
    const from = SCALES + (r << 4);
    if (type == IQ4_XS) {
      store<u8>(out + r, load<u8>(from + block));
    } else {
      const at = from + (block << 1);
      store<u8>(out + (apart ? r : r << 1), load<u8>(at));
      store<u8>(out + (apart ? r + 4 : (r << 1) + 1), load<u8>(at, 1));
    }
  }
}

/**
 * Returns 16 of the 32 quants of one row's block: all quants of one half of the block or, for the method NARROW, 8
 * quants of each half.
 */
// @ts-expect-error: decorator
@inline
function sixteenQuants(narrow: bool, half: i32, at: usize): v128 {
  const a = v128.load(at), b = v128.load(at, 16);
  if (!narrow) return half == 0 ? a : b;
  return half == 0
    ? i16x8.shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
    : i16x8.shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/** Stores 16 bytes of each of four rows so that each lane of a vector has four bytes of one row. */
// @ts-expect-error: decorator
@inline
function transpose(r0: v128, r1: v128, r2: v128, r3: v128, out: usize): void {
  const a = i32x4.shuffle(r0, r1, 0, 4, 1, 5), b = i32x4.shuffle(r2, r3, 0, 4, 1, 5);
  const c = i32x4.shuffle(r0, r1, 2, 6, 3, 7), d = i32x4.shuffle(r2, r3, 2, 6, 3, 7);
  v128.store(out, i64x2.shuffle(a, b, 0, 2));
  v128.store(out, i64x2.shuffle(a, b, 1, 3), 16);
  v128.store(out, i64x2.shuffle(c, d, 0, 2), 32);
  v128.store(out, i64x2.shuffle(c, d, 1, 3), 48);
}

/** Packs the four operands of a step (half of a block of four rows) into the packed vectors of the step. */
function packStep(type: i32, operands: usize, out: usize): void {
  const q0 = v128.load(operands), q1 = v128.load(operands, 16);
  const q2 = v128.load(operands, 32), q3 = v128.load(operands, 48);
  if (type == Q6_K) {
    v128.store(out, v128.or(q0, i8x16.shl(v128.and(q3, i8x16.splat(0x30)), 2)));
    v128.store(out, v128.or(q1, i8x16.shl(v128.and(q3, i8x16.splat(0x0c)), 4)), 16);
    v128.store(out, v128.or(q2, i8x16.shl(q3, 6)), 32);
  } else if (vectorsOf(type) == 1) {
    const three = i8x16.splat(3);
    const low = v128.or(v128.and(q0, three), i8x16.shl(v128.and(q1, three), 2));
    v128.store(out, v128.or(low, v128.or(i8x16.shl(v128.and(q2, three), 4), i8x16.shl(q3, 6))));
  } else {
    const nibble = i8x16.splat(15);
    v128.store(out, v128.or(v128.and(q0, nibble), i8x16.shl(q1, 4)));
    v128.store(out, v128.or(v128.and(q2, nibble), i8x16.shl(q3, 4)), 16);
  }
}

/**
 * Collects bit `bit` of every byte of a block's eight operands in one vector: in each byte, bit i comes from operand i.
 */
function singleBits(bit: i32): v128 {
  let bits = i32x4.splat(0);
  for (let i = 0; i < 8; i++) {
    const one = v128.and(i8x16.shr_u(v128.load(OPERANDS + (i << 4)), bit), i8x16.splat(1));
    bits = v128.or(bits, i8x16.shl(one, i));
  }
  return bits;
}

export function readRow(type: i32, matrix: usize, row: i32, rows: i32, k: i32, out: usize): void {
  const supers = k / SUPER;
  const group = <usize>(row / ROWS) * supers, lane = row % ROWS;
  let record = matrix + group * superRecordBytes(type);
  let superScales = matrix + <usize>(rows / ROWS) * supers * superRecordBytes(type) +
    group * superScaleBytes(type) + (lane << 1);
  for (let s = 0; s < supers; s++) {
    unpackGroup(type, record, PANEL);
    const scale = half(load<u16>(superScales));
    const least = hasMinimums(type) ? half(load<u16>(superScales, 8)) : 0;
    for (let b = 0; b < BLOCKS; b++) {
      for (let h = 0; h < 2; h++) {
        readHalf(type, b, h, lane, record + b * scaleBytes(type), scale, least, out);
        out += 64;
      }
    }
    record += superRecordBytes(type);
    superScales += superScaleBytes(type);
  }
}

/** Reads 16 columns of one row from the unpacked record at PANEL. */
function readHalf(
  type: i32, block: i32, h: i32, lane: i32, scales: usize, superScale: f32, superLeast: f32, out: usize,
): void {
  const narrow = superProducts(type) == NARROW;
  const first = <usize>lane << (type == IQ4_XS || (hasHalves(type) && !narrow) ? 0 : 1);
  const second = hasHalves(type) && !narrow ? first + 4 : first + 1;
  const at = scales + (hasHalves(type) && h != 0 ? second : first);
  let scale: f32, least: f32 = 0;
  if (type == Q2_K) {
    scale = superScale * <f32>(load<u8>(at) & 15);
    least = superLeast * <f32>(load<u8>(at) >> 4);
  } else {
    scale = superScale * (hasMinimums(type) ? <f32>load<u8>(at) : <f32>load<i8>(at));
    if (hasMinimums(type)) least = superLeast * <f32>load<u8>(scales + second);
  }
  const bias = type == Q6_K ? 32 : type == Q3_K ? 4 : type == IQ4_XS && superProducts(type) == WIDE ? 128 : 0;
  for (let c = 0; c < 16; c++) {
    // With the method NARROW, an operand has two columns of each half of the block, otherwise four columns of one half.
    const operand = narrow ? c >> 1 : (h << 2) + (c >> 2);
    const byte = narrow ? (h << 1) + (c & 1) : c & 3;
    const quant = PANEL + (block << 7) + (operand << 4) + (lane << 2) + byte;
    const value = type == IQ4_XS && bias == 0 ? <i32>load<i8>(quant) : <i32>load<u8>(quant) - bias;
    store<f32>(out + (c << 2), scale * <f32>value - least);
  }
}

// @ts-expect-error: decorator
@inline
function half(bits: u16): f32 {
  const shifted = (<u32>(<i32><i16>bits) << 13) & HALF_MASK;
  return reinterpret<f32>(shifted) * reinterpret<f32>(HALF_FACTOR);
}
