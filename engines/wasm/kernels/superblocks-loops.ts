// Owns the choice of an inner loop of products with blocks of 256: here the numbers of types and of ways become
// constants, each pair a function. Called by superblocks.ts; the loops themselves are in superblocks-tiles.ts
// (one column) and superblocks-panels.ts (four).
import { NARROW, PAIRS, superProducts, WIDE } from "./superblocks-layout";
import { multiplyFour, unpack } from "./superblocks-panels";
import { multiplyOne } from "./superblocks-tiles";
import { IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K } from "./types";

/** Four panels: scratch of a call, in the first 64 KiB of the memory, which the host leaves to the kernels. */
export const PANEL: usize = 8192;

/** One vector of activations times 16 rows. */
export function multiplyColumn(
  type: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize,
): void {
  if (type == Q4_K) oneQ4_K(matrix, rows, supers, group, x, y);
  else if (type == Q6_K) oneQ6_K(matrix, rows, supers, group, x, y);
  else if (type == Q5_K) oneQ5_K(matrix, rows, supers, group, x, y);
  else if (type == Q2_K) oneQ2_K(matrix, rows, supers, group, x, y);
  else if (type == Q3_K) oneQ3_K(matrix, rows, supers, group, x, y);
  else oneIQ4_XS(matrix, rows, supers, group, x, y);
}

/** See multiplyFour(). */
export function multiplyColumns(
  type: i32, panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  if (type == Q4_K) fourQ4_K(panel, scales, gap, superScales, superGap, x, y, below, stride);
  else if (type == Q6_K) fourQ6_K(panel, scales, gap, superScales, superGap, x, y, below, stride);
  else if (type == Q5_K) fourQ5_K(panel, scales, gap, superScales, superGap, x, y, below, stride);
  else if (type == Q2_K) fourQ2_K(panel, scales, gap, superScales, superGap, x, y, below, stride);
  else if (type == Q3_K) fourQ3_K(panel, scales, gap, superScales, superGap, x, y, below, stride);
  else fourIQ4_XS(panel, scales, gap, superScales, superGap, x, y, below, stride);
}

/** Operands of a group's record. */
export function unpackGroup(type: i32, record: usize, panel: usize): void {
  if (type == Q4_K) unpack(Q4_K, PAIRS, record, panel);
  else if (type == Q6_K) unpack(Q6_K, PAIRS, record, panel);
  else if (type == Q5_K) unpack(Q5_K, PAIRS, record, panel);
  else if (type == Q2_K) unpack(Q2_K, PAIRS, record, panel);
  else if (type == Q3_K) unpack(Q3_K, PAIRS, record, panel);
  else unpack(IQ4_XS, superProducts(IQ4_XS), record, panel);
}

// @ts-ignore: decorator
@inline
function one(type: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  const products = superProducts(type);
  if (ASC_FEATURE_RELAXED_SIMD && products == WIDE) multiplyOne(type, WIDE, matrix, rows, supers, group, x, y);
  else if (ASC_FEATURE_RELAXED_SIMD && type != IQ4_XS) multiplyOne(type, NARROW, matrix, rows, supers, group, x, y);
  else multiplyOne(type, PAIRS, matrix, rows, supers, group, x, y);
}

function oneQ4_K(matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  one(Q4_K, matrix, rows, supers, group, x, y);
}

function oneQ6_K(matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  one(Q6_K, matrix, rows, supers, group, x, y);
}

function oneQ5_K(matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  one(Q5_K, matrix, rows, supers, group, x, y);
}

function oneQ2_K(matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  one(Q2_K, matrix, rows, supers, group, x, y);
}

function oneQ3_K(matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  one(Q3_K, matrix, rows, supers, group, x, y);
}

function oneIQ4_XS(matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize): void {
  one(IQ4_XS, matrix, rows, supers, group, x, y);
}

// @ts-ignore: decorator
@inline
function four(
  type: i32, panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  const products = superProducts(type);
  if (ASC_FEATURE_RELAXED_SIMD && products == WIDE) {
    multiplyFour(type, WIDE, panel, scales, gap, superScales, superGap, x, y, below, stride);
  } else if (ASC_FEATURE_RELAXED_SIMD && type != IQ4_XS) {
    multiplyFour(type, NARROW, panel, scales, gap, superScales, superGap, x, y, below, stride);
  } else multiplyFour(type, PAIRS, panel, scales, gap, superScales, superGap, x, y, below, stride);
}

function fourQ4_K(
  panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  four(Q4_K, panel, scales, gap, superScales, superGap, x, y, below, stride);
}

function fourQ6_K(
  panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  four(Q6_K, panel, scales, gap, superScales, superGap, x, y, below, stride);
}

function fourQ5_K(
  panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  four(Q5_K, panel, scales, gap, superScales, superGap, x, y, below, stride);
}

function fourQ2_K(
  panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  four(Q2_K, panel, scales, gap, superScales, superGap, x, y, below, stride);
}

function fourQ3_K(
  panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  four(Q3_K, panel, scales, gap, superScales, superGap, x, y, below, stride);
}

function fourIQ4_XS(
  panel: usize, scales: usize, gap: usize, superScales: usize, superGap: usize, x: usize, y: usize,
  below: usize, stride: usize,
): void {
  four(IQ4_XS, panel, scales, gap, superScales, superGap, x, y, below, stride);
}
