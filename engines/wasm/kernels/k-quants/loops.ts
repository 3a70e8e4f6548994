// Dispatch of k-quant products: selects the inner loop of a tile by type and method. Both are compile-time constants in
// the loop. Called by k-quants.ts. The loops are in tiles.ts (one column), twos.ts and fours.ts.
//
// Each combination needs its own function. If one function has similar loops for several methods, the optimiser merges
// them into one loop that tests the method at every vector.

import { IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K } from "../types";
import { multiplyFour } from "./fours";
import { NARROW, PAIRS, superProducts, WIDE } from "./layout";
import { unpack } from "./panels";
import { multiplyOne } from "./tiles";
import { multiplyTwo } from "./twos";

/**
 * Multiplies 16 rows of a matrix by one, two or four columns of activations. `products` is the multiplication method:
 * WIDE, NARROW or PAIRS. With relaxed SIMD, PAIRS occurs only for IQ4_XS, which NARROW cannot multiply.
 */
export function multiplyTile(
  type: i32, products: i32, columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize,
  yBytes: usize,
): void {
  if (ASC_FEATURE_RELAXED_SIMD) {
    if (products == WIDE) {
      if (type == Q4_K) wideQ4_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q6_K) wideQ6_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q5_K) wideQ5_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q2_K) wideQ2_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q3_K) wideQ3_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else wideIQ4_XS(columns, matrix, rows, supers, group, x, y, yBytes);
    } else {
      if (type == Q4_K) narrowQ4_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q6_K) narrowQ6_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q5_K) narrowQ5_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q2_K) narrowQ2_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else if (type == Q3_K) narrowQ3_K(columns, matrix, rows, supers, group, x, y, yBytes);
      else pairsIQ4_XS(columns, matrix, rows, supers, group, x, y, yBytes);
    }
  } else {
    if (type == Q4_K) pairsQ4_K(columns, matrix, rows, supers, group, x, y, yBytes);
    else if (type == Q6_K) pairsQ6_K(columns, matrix, rows, supers, group, x, y, yBytes);
    else if (type == Q5_K) pairsQ5_K(columns, matrix, rows, supers, group, x, y, yBytes);
    else if (type == Q2_K) pairsQ2_K(columns, matrix, rows, supers, group, x, y, yBytes);
    else if (type == Q3_K) pairsQ3_K(columns, matrix, rows, supers, group, x, y, yBytes);
    else pairsIQ4_XS(columns, matrix, rows, supers, group, x, y, yBytes);
  }
}

/**
 * Unpacks one record (four rows of a super-block of 256 columns) to one byte per quant. Writes 1024 bytes at `panel`.
 */
export function unpackGroup(type: i32, record: usize, panel: usize): void {
  if (type == Q4_K) unpack(Q4_K, PAIRS, record, panel);
  else if (type == Q6_K) unpack(Q6_K, PAIRS, record, panel);
  else if (type == Q5_K) unpack(Q5_K, PAIRS, record, panel);
  else if (type == Q2_K) unpack(Q2_K, PAIRS, record, panel);
  else if (type == Q3_K) unpack(Q3_K, PAIRS, record, panel);
  else unpack(IQ4_XS, superProducts(IQ4_XS), record, panel);
}

function wideQ4_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q4_K, WIDE, columns, matrix, rows, supers, group, x, y, yBytes);
}

function wideQ6_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q6_K, WIDE, columns, matrix, rows, supers, group, x, y, yBytes);
}

function wideQ5_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q5_K, WIDE, columns, matrix, rows, supers, group, x, y, yBytes);
}

function wideQ2_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q2_K, WIDE, columns, matrix, rows, supers, group, x, y, yBytes);
}

function wideQ3_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q3_K, WIDE, columns, matrix, rows, supers, group, x, y, yBytes);
}

function wideIQ4_XS(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(IQ4_XS, WIDE, columns, matrix, rows, supers, group, x, y, yBytes);
}

function narrowQ4_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q4_K, NARROW, columns, matrix, rows, supers, group, x, y, yBytes);
}

function narrowQ6_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q6_K, NARROW, columns, matrix, rows, supers, group, x, y, yBytes);
}

function narrowQ5_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q5_K, NARROW, columns, matrix, rows, supers, group, x, y, yBytes);
}

function narrowQ2_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q2_K, NARROW, columns, matrix, rows, supers, group, x, y, yBytes);
}

function narrowQ3_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q3_K, NARROW, columns, matrix, rows, supers, group, x, y, yBytes);
}

function pairsQ4_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q4_K, PAIRS, columns, matrix, rows, supers, group, x, y, yBytes);
}

function pairsQ6_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q6_K, PAIRS, columns, matrix, rows, supers, group, x, y, yBytes);
}

function pairsQ5_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q5_K, PAIRS, columns, matrix, rows, supers, group, x, y, yBytes);
}

function pairsQ2_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q2_K, PAIRS, columns, matrix, rows, supers, group, x, y, yBytes);
}

function pairsQ3_K(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(Q3_K, PAIRS, columns, matrix, rows, supers, group, x, y, yBytes);
}

function pairsIQ4_XS(
  columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize, yBytes: usize,
): void {
  tile(IQ4_XS, PAIRS, columns, matrix, rows, supers, group, x, y, yBytes);
}

// @ts-expect-error: decorator
@inline
function tile(
  type: i32, products: i32, columns: i32, matrix: usize, rows: i32, supers: i32, group: i32, x: usize, y: usize,
  yBytes: usize,
): void {
  if (columns == 4) {
    multiplyFour(type, products, matrix, rows, supers, group, x, y, yBytes);
    multiplyFour(type, products, matrix, rows, supers, group + (rows >> 4), x, y, yBytes);
  } else if (columns == 2) {
    multiplyTwo(type, products, matrix, rows, supers, group, x, y, yBytes);
  } else {
    multiplyOne(type, products, matrix, rows, supers, group, x, y);
  }
}
