// Dispatch of block-quant products: selects the inner loop of a tile by type and method. Each combination of type and
// method has its own loop, in which both are compile-time constants. Called by block-quants.ts for each tile.

import { IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../types";
import { NARROW, PAIRS, WIDE } from "./layout";
import { tileOf1, tileOf2, tileOf4 } from "./tiles";

/**
 * Multiplies one tile. Without relaxed SIMD, the method is always PAIRS. With relaxed SIMD, the method is PAIRS only if
 * NARROW is impossible for the type.
 */
export function multiplyTile(
  type: i32,
  products: i32,
  columns: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
  yBytes: i32,
): void {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (products == WIDE) {
      if (type == Q8_0) wideQ8_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q4_0) wideQ4_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q4_1) wideQ4_1(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q5_0) wideQ5_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q5_1) wideQ5_1(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == IQ4_NL) wideIQ4_NL(columns, matrix, rows, blocks, group, x, y, yBytes);
      else wideMXFP4(columns, matrix, rows, blocks, group, x, y, yBytes);
    } else {
      if (type == Q8_0) pairsQ8_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q4_0) narrowQ4_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q4_1) narrowQ4_1(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q5_0) narrowQ5_0(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == Q5_1) narrowQ5_1(columns, matrix, rows, blocks, group, x, y, yBytes);
      else if (type == IQ4_NL) pairsIQ4_NL(columns, matrix, rows, blocks, group, x, y, yBytes);
      else narrowMXFP4(columns, matrix, rows, blocks, group, x, y, yBytes);
    }
  } else {
    if (type == Q8_0) pairsQ8_0(columns, matrix, rows, blocks, group, x, y, yBytes);
    else if (type == Q4_0) pairsQ4_0(columns, matrix, rows, blocks, group, x, y, yBytes);
    else if (type == Q4_1) pairsQ4_1(columns, matrix, rows, blocks, group, x, y, yBytes);
    else if (type == Q5_0) pairsQ5_0(columns, matrix, rows, blocks, group, x, y, yBytes);
    else if (type == Q5_1) pairsQ5_1(columns, matrix, rows, blocks, group, x, y, yBytes);
    else if (type == IQ4_NL) pairsIQ4_NL(columns, matrix, rows, blocks, group, x, y, yBytes);
    else pairsMXFP4(columns, matrix, rows, blocks, group, x, y, yBytes);
  }
}

function wideQ8_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q8_0, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideQ4_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_0, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideQ4_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_1, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideQ5_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q5_0, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideQ5_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q5_1, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideIQ4_NL(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(IQ4_NL, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function wideMXFP4(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(MXFP4, WIDE, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowQ4_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_0, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowQ4_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_1, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowQ5_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q5_0, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowQ5_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q5_1, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function narrowMXFP4(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(MXFP4, NARROW, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ8_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q8_0, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ4_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_0, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ4_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q4_1, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ5_0(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q5_0, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsQ5_1(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(Q5_1, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsIQ4_NL(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(IQ4_NL, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

function pairsMXFP4(
  columns: i32, matrix: usize, rows: i32, blocks: i32, group: i32, x: usize, y: usize, yBytes: i32,
): void {
  tile(MXFP4, PAIRS, columns, matrix, rows, blocks, group, x, y, yBytes);
}

// @ts-expect-error: decorator
@inline
function tile(
  type: i32,
  products: i32,
  columns: i32,
  matrix: usize,
  rows: i32,
  blocks: i32,
  group: i32,
  x: usize,
  y: usize,
  yBytes: i32,
): void {
  if (columns == 4) {
    tileOf4(type, products, matrix, rows, blocks, group, x, y, yBytes);
    tileOf4(type, products, matrix, rows, blocks, group + (rows >> 4), x, y, yBytes);
  } else if (columns == 2) {
    tileOf2(type, products, matrix, rows, blocks, group, x, y, yBytes);
  } else {
    tileOf1(type, products, matrix, rows, blocks, group, x, y);
  }
}
