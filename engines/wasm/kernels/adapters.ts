// Products of LoRA adapters: (W + B A) x. For each adapter of a pass, the kernels multiply A by the inputs of the
// adapter's tokens. They then multiply B by these products, and add the results to the products with W. Each call
// processes all adapters of the pass.
//
// The values of A and B are signed 16-bit integers. A rank is a row of A and the matching column of B. Each rank has
// one scale, which is applied in the product with A.
//
// Rows of A are stored in tiles of four rows. For every four columns, a tile has four values of each of its rows, row
// by row. Rows of B are stored in panels of 16 rows. For every rank, a panel has 16 values, one per row.
//
// A site is a set of matrices with the same input. The ranks of all its matrices are stacked in one A, whose rows are
// divided among the threads in order. The host writes two tables of 32-bit integers for the kernels:
//
//   site    number of rows of A per thread, number of this thread's rows, address of the scales, address of A;
//           then for each matrix: address of B, index of the first rank, number of ranks
//   group   address of an adapter's sites, index of its first token in the token list, number of its tokens
//
// A token's results do not depend on the other tokens of the pass, because the order of summation is fixed.
import { multiplyAdd } from "./arithmetic";

const GROUP_BYTES: usize = 12;
const SHARE: usize = 0;
const OWN: usize = 4;
const SCALES: usize = 8;
const VALUES: usize = 12;
const MATRICES: usize = 16;
const MATRIX_BYTES: usize = 12;

/** kernel-exports.ts specifies this function. */
export function reduceAdapters(
  site: usize,
  groups: usize,
  groupCount: i32,
  tokens: usize,
  x: usize,
  stride: i32,
  k: i32,
  out: usize,
): i32 {
  const groupsEnd = groups + GROUP_BYTES * groupCount;
  let width = 0;
  for (let group = groups; group != groupsEnd; group += GROUP_BYTES) {
    width = max(width, load<i32>(load<usize>(group) + site, SHARE));
  }
  if (width == 0) return 0;
  const outBytes = <usize>width << 2;
  const xBytes = <usize>stride << 2;
  for (let group = groups; group != groupsEnd; group += GROUP_BYTES) {
    const at = load<usize>(group) + site;
    const rows = load<i32>(at, OWN);
    if (rows == 0) continue;
    const scales = load<usize>(at, SCALES);
    const values = load<usize>(at, VALUES);
    const first = load<i32>(group, 4);
    const count = load<i32>(group, 8);
    let token = tokens + (<usize>first << 2);
    let y = out + outBytes * first;
    let left = count;
    for (; left >= 2; left -= 2) {
      const x0 = x + xBytes * load<i32>(token);
      const x1 = x + xBytes * load<i32>(token, 4);
      reduceTwo(values, scales, rows, k, x0, x1, y, y + outBytes);
      token += 8;
      y += outBytes << 1;
    }
    if (left == 1) reduceOne(values, scales, rows, k, x + xBytes * load<i32>(token), y);
  }
  return width;
}

/** Returns a vector of four floats: the sums of the lanes of a, b, c and d. */
// @ts-ignore: decorator
@inline
function lanesSums(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7));
  const cd = f32x4.add(v128.shuffle<i32>(c, d, 0, 4, 1, 5), v128.shuffle<i32>(c, d, 2, 6, 3, 7));
  return f32x4.add(v128.shuffle<i64>(ab, cd, 0, 2), v128.shuffle<i64>(ab, cd, 1, 3));
}

/** Multiplies `rows` rows of A (a multiple of four) by the inputs of two tokens. */
function reduceTwo(a: usize, scales: usize, rows: i32, k: i32, x0: usize, x1: usize, y0: usize, y1: usize): void {
  const xBytes = <usize>k << 2;
  for (const end = y0 + (<usize>rows << 2); y0 != end; y0 += 16) {
    let a0 = f32x4.splat(0);
    let a1 = a0;
    let b0 = a0;
    let b1 = a0;
    let c0 = a0;
    let c1 = a0;
    let d0 = a0;
    let d1 = a0;
    for (let at: usize = 0; at != xBytes; at += 16) {
      const u = v128.load(x0 + at);
      const v = v128.load(x1 + at);
      const first = f32x4.convert_i32x4_s(v128.load16x4_s(a));
      a0 = multiplyAdd(first, u, a0);
      a1 = multiplyAdd(first, v, a1);
      const second = f32x4.convert_i32x4_s(v128.load16x4_s(a, 8));
      b0 = multiplyAdd(second, u, b0);
      b1 = multiplyAdd(second, v, b1);
      const third = f32x4.convert_i32x4_s(v128.load16x4_s(a, 16));
      c0 = multiplyAdd(third, u, c0);
      c1 = multiplyAdd(third, v, c1);
      const fourth = f32x4.convert_i32x4_s(v128.load16x4_s(a, 24));
      d0 = multiplyAdd(fourth, u, d0);
      d1 = multiplyAdd(fourth, v, d1);
      a += 32;
    }
    const scale = v128.load(scales);
    v128.store(y0, f32x4.mul(lanesSums(a0, b0, c0, d0), scale));
    v128.store(y1, f32x4.mul(lanesSums(a1, b1, c1, d1), scale));
    scales += 16;
    y1 += 16;
  }
}

/** Multiplies `rows` rows of A (a multiple of four) by the inputs of one token. */
function reduceOne(a: usize, scales: usize, rows: i32, k: i32, x: usize, y: usize): void {
  const xBytes = <usize>k << 2;
  for (const end = y + (<usize>rows << 2); y != end; y += 16) {
    let a0 = f32x4.splat(0);
    let b0 = a0;
    let c0 = a0;
    let d0 = a0;
    for (let at: usize = 0; at != xBytes; at += 16) {
      const u = v128.load(x + at);
      a0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(a)), u, a0);
      b0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(a, 8)), u, b0);
      c0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(a, 16)), u, c0);
      d0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(a, 24)), u, d0);
      a += 32;
    }
    v128.store(y, f32x4.mul(lanesSums(a0, b0, c0, d0), v128.load(scales)));
    scales += 16;
  }
}

/** kernel-exports.ts specifies this function. */
export function addAdapters(
  site: usize,
  matrix: i32,
  groups: usize,
  groupCount: i32,
  tokens: usize,
  reduced: usize,
  reducedBytes: usize,
  width: i32,
  scratch: usize,
  rows: i32,
  y: usize,
  stride: i32,
): void {
  const offset = MATRICES + MATRIX_BYTES * matrix;
  const yBytes = <usize>stride << 2;
  const inBytes = <usize>width << 2;
  for (const end = groups + GROUP_BYTES * groupCount; groups != end; groups += GROUP_BYTES) {
    const at = load<usize>(groups) + site;
    const ranks = load<i32>(at + offset, 8);
    if (ranks == 0) continue;
    const b = load<usize>(at + offset);
    const share = load<i32>(at, SHARE);
    const firstRank = load<i32>(at + offset, 4);
    const first = load<i32>(groups, 4);
    let token = tokens + (<usize>first << 2);
    let from = reduced + inBytes * first;
    let left = load<i32>(groups, 8);
    for (; left >= 2; left -= 2) {
      gather(from, reducedBytes, share, firstRank, ranks, scratch, 8);
      gather(from + inBytes, reducedBytes, share, firstRank, ranks, scratch + 4, 8);
      addTwo(b, ranks, rows, scratch, y + yBytes * load<i32>(token), y + yBytes * load<i32>(token, 4));
      token += 8;
      from += inBytes << 1;
    }
    if (left == 1) {
      gather(from, reducedBytes, share, firstRank, ranks, scratch, 4);
      addOne(b, ranks, rows, scratch, y + yBytes * load<i32>(token));
    }
  }
}

/**
 * Collects one token's products with A from the results of all threads, for the ranks of one matrix. Writes them to
 * `out`, with `apart` bytes from one value to the next.
 */
function gather(
  from: usize,
  reducedBytes: usize,
  share: i32,
  firstRank: i32,
  ranks: i32,
  out: usize,
  apart: usize,
): void {
  const thread = firstRank / share;
  let row = firstRank - thread * share;
  from += reducedBytes * thread + (<usize>row << 2);
  for (; ranks > 0; ranks--) {
    store<f32>(out, load<f32>(from));
    out += apart;
    from += 4;
    if (++row == share) {
      row = 0;
      from += reducedBytes - (<usize>share << 2);
    }
  }
}

/**
 * Multiplies `rows` rows of B (a multiple of 16) by two tokens' products with A, and adds the results to y0 and y1. At
 * `x`, the values of the two tokens alternate.
 */
function addTwo(b: usize, ranks: i32, rows: i32, x: usize, y0: usize, y1: usize): void {
  const xBytes = <usize>ranks << 3;
  for (const end = y0 + (<usize>rows << 2); y0 != end; y0 += 64) {
    let a0 = v128.load(y0);
    let b0 = v128.load(y0, 16);
    let c0 = v128.load(y0, 32);
    let d0 = v128.load(y0, 48);
    let a1 = v128.load(y1);
    let b1 = v128.load(y1, 16);
    let c1 = v128.load(y1, 32);
    let d1 = v128.load(y1, 48);
    for (let at: usize = 0; at != xBytes; at += 8) {
      const u = v128.load32_splat(x + at);
      const v = v128.load32_splat(x + at, 4);
      const first = f32x4.convert_i32x4_s(v128.load16x4_s(b));
      a0 = multiplyAdd(first, u, a0);
      a1 = multiplyAdd(first, v, a1);
      const second = f32x4.convert_i32x4_s(v128.load16x4_s(b, 8));
      b0 = multiplyAdd(second, u, b0);
      b1 = multiplyAdd(second, v, b1);
      const third = f32x4.convert_i32x4_s(v128.load16x4_s(b, 16));
      c0 = multiplyAdd(third, u, c0);
      c1 = multiplyAdd(third, v, c1);
      const fourth = f32x4.convert_i32x4_s(v128.load16x4_s(b, 24));
      d0 = multiplyAdd(fourth, u, d0);
      d1 = multiplyAdd(fourth, v, d1);
      b += 32;
    }
    v128.store(y0, a0);
    v128.store(y0, b0, 16);
    v128.store(y0, c0, 32);
    v128.store(y0, d0, 48);
    v128.store(y1, a1);
    v128.store(y1, b1, 16);
    v128.store(y1, c1, 32);
    v128.store(y1, d1, 48);
    y1 += 64;
  }
}

/**
 * Adds B * x to y. B has `rows` rows, a multiple of 16. x holds one token's product with A: one value for each rank.
 */
function addOne(b: usize, ranks: i32, rows: i32, x: usize, y: usize): void {
  const xBytes = <usize>ranks << 2;
  for (const end = y + (<usize>rows << 2); y != end; y += 64) {
    let a0 = v128.load(y);
    let b0 = v128.load(y, 16);
    let c0 = v128.load(y, 32);
    let d0 = v128.load(y, 48);
    for (let at: usize = 0; at != xBytes; at += 4) {
      const u = v128.load32_splat(x + at);
      a0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(b)), u, a0);
      b0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(b, 8)), u, b0);
      c0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(b, 16)), u, c0);
      d0 = multiplyAdd(f32x4.convert_i32x4_s(v128.load16x4_s(b, 24)), u, d0);
      b += 32;
    }
    v128.store(y, a0);
    v128.store(y, b0, 16);
    v128.store(y, c0, 32);
    v128.store(y, d0, 48);
  }
}
