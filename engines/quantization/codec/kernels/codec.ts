// Exports of the codec module: encoders and decoders of the number types of GGUF files. The module keeps no state between
// calls. All pointers are byte offsets into its memory, aligned to 16 bytes. Memory below base() is the module's own. The
// host places all buffers above it, each with 32 bytes after its end that may be read and overwritten.
import { fileSuperBytes } from "../../../wasm/kernels/k-quants/file";
import {
  BF16, F16, F32, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
} from "../../../wasm/kernels/types";
import { encodeBlockRow } from "./blocks/encode";
import { blockBytes } from "./blocks/format";
import { decodeBlocks, decodeSupers } from "./decode";
import { decodeFloats, encodeFloats } from "./floats";
import { encodeSuperRow, SUPER } from "./super-blocks";

/** Returns the address of the memory that the host may use. */
export function base(): usize {
  return (__heap_base + 15) & ~15;
}

/** Returns the index of the first of `count` floats that is NaN or whose magnitude is above `limit`; -1 if there is none. */
export function findInvalid(at: usize, count: i32, limit: f32): i32 {
  const limits = f32x4.splat(limit);
  let i = 0;
  for (; i + 16 <= count; i += 16) {
    const from = at + (<usize>i << 2);
    const a = f32x4.le(f32x4.abs(v128.load(from)), limits), b = f32x4.le(f32x4.abs(v128.load(from, 16)), limits);
    const c = f32x4.le(f32x4.abs(v128.load(from, 32)), limits), d = f32x4.le(f32x4.abs(v128.load(from, 48)), limits);
    if (!i32x4.all_true(v128.and(v128.and(a, b), v128.and(c, d)))) break;
  }
  for (; i < count; i++) if (!(abs(load<f32>(at + (<usize>i << 2))) <= limit)) return i;
  return -1;
}

/**
 * Encodes `rows` rows of `columns` finite floats. `importance` is 0, or the address of one positive weight for each
 * column.
 */
export function encode(type: i32, from: usize, rows: i32, columns: i32, importance: usize, out: usize): void {
  if (type == F32 || type == F16 || type == BF16) {
    encodeFloats(type, from, rows * columns, out);
    return;
  }
  for (let row = 0; row < rows; row++) {
    encodeRow(type, from, columns, importance, out);
    from += <usize>columns << 2;
    out += rowBytes(type, columns);
  }
}

function rowBytes(type: i32, columns: i32): usize {
  const isSuper = (type >= Q2_K && type <= Q6_K) || type == IQ4_XS;
  return isSuper ? <usize>(columns / SUPER) * fileSuperBytes(type) : <usize>(columns / 32) * blockBytes(type);
}

// A constant type in each call makes the compiler emit code for that type alone.
function encodeRow(type: i32, x: usize, columns: i32, importance: usize, out: usize): void {
  if (type == Q4_0) encodeBlockRow(Q4_0, x, columns, importance, out);
  else if (type == Q4_1) encodeBlockRow(Q4_1, x, columns, importance, out);
  else if (type == Q5_0) encodeBlockRow(Q5_0, x, columns, importance, out);
  else if (type == Q5_1) encodeBlockRow(Q5_1, x, columns, importance, out);
  else if (type == Q8_0) encodeBlockRow(Q8_0, x, columns, importance, out);
  else if (type == IQ4_NL) encodeBlockRow(IQ4_NL, x, columns, importance, out);
  else if (type == MXFP4) encodeBlockRow(MXFP4, x, columns, importance, out);
  else if (type == Q2_K) encodeSuperRow(Q2_K, x, columns, importance, out);
  else if (type == Q3_K) encodeSuperRow(Q3_K, x, columns, importance, out);
  else if (type == Q4_K) encodeSuperRow(Q4_K, x, columns, importance, out);
  else if (type == Q5_K) encodeSuperRow(Q5_K, x, columns, importance, out);
  else if (type == Q6_K) encodeSuperRow(Q6_K, x, columns, importance, out);
  else if (type == IQ4_XS) encodeSuperRow(IQ4_XS, x, columns, importance, out);
  else unreachable();
}

/** Decodes `count` values, a multiple of the type's block length. */
export function decode(type: i32, from: usize, count: i32, out: usize): void {
  if (type == F32 || type == F16 || type == BF16) decodeFloats(type, from, count, out);
  else if (type == Q4_0) decodeBlocks(Q4_0, from, count, out);
  else if (type == Q4_1) decodeBlocks(Q4_1, from, count, out);
  else if (type == Q5_0) decodeBlocks(Q5_0, from, count, out);
  else if (type == Q5_1) decodeBlocks(Q5_1, from, count, out);
  else if (type == Q8_0) decodeBlocks(Q8_0, from, count, out);
  else if (type == IQ4_NL) decodeBlocks(IQ4_NL, from, count, out);
  else if (type == MXFP4) decodeBlocks(MXFP4, from, count, out);
  else if (type == Q2_K) decodeSupers(Q2_K, from, count, out);
  else if (type == Q3_K) decodeSupers(Q3_K, from, count, out);
  else if (type == Q4_K) decodeSupers(Q4_K, from, count, out);
  else if (type == Q5_K) decodeSupers(Q5_K, from, count, out);
  else if (type == Q6_K) decodeSupers(Q6_K, from, count, out);
  else if (type == IQ4_XS) decodeSupers(IQ4_XS, from, count, out);
  else unreachable();
}
