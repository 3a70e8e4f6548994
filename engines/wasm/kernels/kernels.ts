// Exports of the kernel module: all kernels of the engine. The module is compiled twice, with and without relaxed SIMD
// (`ASC_FEATURE_RELAXED_SIMD`). Kernels keep no state between calls, except the setting of useWideDot(). Their scratch
// memory is the first 64 KiB of the memory that the host provides. All pointers are byte offsets into this memory,
// aligned to 16 bytes. kernel-exports.ts specifies each kernel.
import * as floats from "./dense/floats";
import * as blockQuants from "./block-quants/block-quants";
import * as kQuants from "./k-quants/k-quants";

export { activate, gate, softcap } from "./activations";
export { addAdapters, reduceAdapters } from "./adapters";
export { attend, kvPageBytes, kvWrite, mergeAttention } from "./attention/attention";
export { useWideDot } from "./block-quants/block-quants";
export { probeAddDot, probeDot, probeLookUp, probePairDot, probeReadAll } from "./probes";
export { addRows, addScaledRow, addVector, clampRows, copyRows, scaleColumns, scaleRows } from "./rows";
export { layerNorm, rmsNorm, rope } from "./dense/vectors";

export function matrixBytes(type: i32, rows: i32, k: i32): i32 {
  if (kQuants.hasSuperBlocks(type)) return kQuants.matrixBytes(type, rows, k);
  return blockQuants.isBlockQuant(type) ? blockQuants.matrixBytes(type, rows, k) : floats.matrixBytes(type, rows, k);
}

export function packRows(type: i32, source: usize, target: usize, firstRow: i32, count: i32, rows: i32, k: i32): i32 {
  if (kQuants.hasSuperBlocks(type)) return kQuants.packRows(type, source, target, firstRow, count, rows, k);
  return blockQuants.isBlockQuant(type)
    ? blockQuants.packRows(type, source, target, firstRow, count, rows, k)
    : floats.packRows(type, source, target, firstRow, count, rows, k);
}

export function readRow(type: i32, matrix: usize, row: i32, rows: i32, k: i32, out: usize): void {
  if (kQuants.hasSuperBlocks(type)) kQuants.readRow(type, matrix, row, rows, k, out);
  else if (blockQuants.isBlockQuant(type)) blockQuants.readRow(type, matrix, row, rows, k, out);
  else floats.readRow(type, matrix, row, rows, k, out);
}

export function activationBytes(type: i32, n: i32, k: i32): i32 {
  if (kQuants.hasSuperBlocks(type)) return kQuants.activationBytes(type, n, k);
  return blockQuants.isBlockQuant(type) ? blockQuants.activationBytes(type, n, k) : floats.activationBytes(type, n, k);
}

/**
 * Returns a number that identifies the activation format of a type. Types with the same number share the output of
 * prepare().
 */
export function activationForm(type: i32): i32 {
  return kQuants.hasSuperBlocks(type) ? kQuants.activationForm(type) : type;
}

export function prepare(type: i32, x: usize, stride: i32, n: i32, k: i32, out: usize): void {
  if (kQuants.hasSuperBlocks(type)) kQuants.prepare(type, x, stride, n, k, out);
  else if (blockQuants.isBlockQuant(type)) blockQuants.prepare(type, x, stride, n, k, out);
  else floats.prepare(type, x, stride, n, k, out);
}

export function multiply(type: i32, matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  if (kQuants.hasSuperBlocks(type)) kQuants.multiply(type, matrix, rows, k, x, n, y, stride);
  else if (blockQuants.isBlockQuant(type)) blockQuants.multiply(type, matrix, rows, k, x, n, y, stride);
  else floats.multiply(type, matrix, rows, k, x, n, y, stride);
}
