// Products of float matrices with prepared activations; floats.ts defines the layout. A tile is the part of the results
// that one loop computes; it has as many sums as fit in the registers. An iteration of this loop processes one column
// of the matrix. A longer iteration would need too many registers, because V8 moves all loads of an iteration before
// its sums.
//
// Every sum adds the columns of the matrix in the same order. Therefore a sequence gets the same results in a batch and
// alone.
//
// T selects how the values of the matrix are loaded: f32 for F32, i16 for F16, u16 for BF16.
import { multiplyAdd } from "../arithmetic";

/**
 * Size in bytes of a block of activations that stays in a core's cache. Each group of rows is multiplied by the whole
 * block before the next group of rows.
 */
const BLOCK_BYTES: i32 = 256 << 10;
/**
 * Mask of sign, exponent and fraction of a shifted F16. The mask is loaded from memory, because V8 would recompute a
 * constant in every iteration.
 */
const F16_MASK = memory.data<i32>([0x8fffe000, 0x8fffe000, 0x8fffe000, 0x8fffe000], 16);
/**
 * Size in bytes of the factor of the sums, which F16 stores after the values of each group (floats.ts): one vector with
 * the factor in all lanes.
 */
export const FACTOR_BYTES: usize = 16;

/** Minimum number of tiles of activations for which groups of rows are converted to F32 once, instead of in each tile. */
const WIDENED_TILES: i32 = 8;
/** Number of columns of two groups that are converted at a time: both must stay in a core's first cache. */
const WIDENED_COLUMNS: i32 = 1024;
/**
 * Two groups of rows as F32, in the first 64 KiB of memory, which the host reserves for the kernels. The attention uses the same scratch
 * memory, but not during a product.
 */
const WIDENED: usize = (__heap_base + 15) & ~15;

/**
 * Multiplies the matrix by n columns of activations. The matrix is read in four streams, one for each quarter of its
 * rows, because one stream would not use the full memory bandwidth.
 */
export function multiplyFloats<T>(matrix: usize, rows: i32, k: i32, x: usize, n: i32, y: usize, stride: i32): void {
  const groupBytes = <usize>k * (sizeof<T>() << 2) + (isFactored<T>() ? FACTOR_BYTES : 0);
  const quarterGroups = rows >> 4;
  const apart = <usize>quarterGroups * groupBytes;
  const yApart = <usize>quarterGroups << 4;
  const tileBytes = <usize>k << 4;
  const yStride = <usize>stride << 2;
  if (!isFloat<T>() && n >= WIDENED_TILES << 2) {
    const tiles = n >> 2;
    multiplyWidened<T>(matrix, quarterGroups, groupBytes, x, tiles, k, y, yStride);
    x += tileBytes * tiles;
    y += yStride * (tiles << 2);
    n &= 3;
  }
  const blockColumns = max(4, (BLOCK_BYTES / (k << 2)) & ~3);
  for (; n > 0; n -= blockColumns) {
    const columns = min(n, blockColumns);
    const tiles = columns >> 2;
    const rest = columns & 3;
    const xRest = x + tileBytes * tiles;
    const yRest = y + yStride * (tiles << 2);
    for (let g = 0; g < quarterGroups; g++) {
      const groups = matrix + groupBytes * g;
      const yGroups = <usize>g << 4;
      for (let half = 0; half < 4; half += 2) {
        const two = groups + apart * half;
        const yTwo = yGroups + yApart * half;
        for (let tile = 0; tile < tiles; tile++) {
          const to = y + yTwo + yStride * (tile << 2);
          fourColumns<T>(two, apart, x + tileBytes * tile, k, to, yApart, yStride, false);
        }
        if (rest == 3) threeColumns<T>(two, apart, xRest, k, yRest + yTwo, yApart, yStride);
      }
      if (rest == 2) twoColumns<T>(groups, apart, xRest, k, yRest + yGroups, yApart, yStride);
      if (rest == 1) oneColumn<T>(groups, apart, xRest, k, yRest + yGroups, yApart);
    }
    x += tileBytes * tiles;
    y += yStride * columns;
  }
}

/**
 * Multiplies the matrix by tiles of four columns of activations. Two groups of rows are converted to F32 for all tiles of a block.
 * Only WIDENED_COLUMNS columns of the matrix are multiplied at a time, so that their activations stay in the cache; the sums continue
 * with the next ones.
 */
function multiplyWidened<T>(
  matrix: usize,
  quarterGroups: i32,
  groupBytes: usize,
  x: usize,
  tiles: i32,
  k: i32,
  y: usize,
  yStride: usize,
): void {
  const apart = <usize>quarterGroups * groupBytes;
  const yApart = <usize>quarterGroups << 4;
  const tileBytes = <usize>k << 4;
  const valuesBytes = <usize>k * (sizeof<T>() << 2);
  const blockTiles = max(WIDENED_TILES, BLOCK_BYTES / (min(k, WIDENED_COLUMNS) << 4));
  for (let firstTile = 0; firstTile < tiles; firstTile += blockTiles) {
    const endTile = min(firstTile + blockTiles, tiles);
    for (let first = 0; first < k; first += WIDENED_COLUMNS) {
      const columns = min(k - first, WIDENED_COLUMNS);
      const other = WIDENED + (<usize>columns << 4);
      const xFirst = x + (<usize>first << 4);
      for (let g = 0; g < quarterGroups; g++) {
        for (let half = 0; half < 4; half += 2) {
          const group = matrix + groupBytes * g + apart * half;
          const from = group + <usize>first * (sizeof<T>() << 2);
          widen<T>(from, columns, group + valuesBytes, WIDENED);
          widen<T>(from + apart, columns, group + apart + valuesBytes, other);
          const yGroup = y + (<usize>g << 4) + yApart * half;
          for (let tile = firstTile; tile < endTile; tile++) {
            const to = yGroup + yStride * (tile << 2);
            fourColumns<f32>(WIDENED, other - WIDENED, xFirst + tileBytes * tile, columns, to, yApart, yStride, first > 0);
          }
        }
      }
    }
  }
}

/**
 * Writes a group of rows as F32. The factor of an F16 group is applied to its values instead of to the sums; it is a power of two,
 * so the results are the same.
 */
function widen<T>(group: usize, columns: i32, factor: usize, out: usize): void {
  const mask = v128.load(F16_MASK);
  const multiplier = isFactored<T>() ? v128.load(factor) : f32x4.splat(1);
  for (const end = group + <usize>columns * (sizeof<T>() << 2); group != end; group += sizeof<T>() << 2) {
    const values = column<T>(group, mask);
    v128.store(out, isFactored<T>() ? f32x4.mul(values, multiplier) : values);
    out += 16;
  }
}

/** Whether the sums must be multiplied by the factor of their group. This is true only for F16. */
// @ts-expect-error: decorator
@inline
function isFactored<T>(): bool {
  return !isFloat<T>() && isSigned<T>();
}

/**
 * Returns the values of a group of rows in one column as floats. For F16, the factor of the group is not yet applied
 * (see floats.ts).
 */
// @ts-expect-error: decorator
@inline
function column<T>(at: usize, mask: v128): v128 {
  if (isFloat<T>()) return v128.load(at);
  if (!isSigned<T>()) return i32x4.shl(v128.load16x4_u(at), 16);
  return v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask);
}

/** Like column(), for the column after the one at `at`. */
// @ts-expect-error: decorator
@inline
function nextColumn<T>(at: usize, mask: v128): v128 {
  if (isFloat<T>()) return v128.load(at, 16);
  if (!isSigned<T>()) return i32x4.shl(v128.load16x4_u(at, 8), 16);
  return v128.and(i32x4.shl(v128.load16x4_s(at, 8), 13), mask);
}

/** Stores sums. For F16, first multiplies them by the factor at the address `factor`, the end of the group's values. */
// @ts-expect-error: decorator
@inline
function storeSums<T>(y: usize, sums: v128, factor: usize): void {
  v128.store(y, isFactored<T>() ? f32x4.mul(sums, v128.load(factor)) : sums);
}

/** Multiplies two groups of four rows by four columns of activations. `continues`: the sums continue those at `y`. */
function fourColumns<T>(
  groups: usize,
  apart: usize,
  x: usize,
  k: i32,
  y: usize,
  yApart: usize,
  yStride: usize,
  continues: bool,
): void {
  const mask = v128.load(F16_MASK);
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let a2 = a0;
  let a3 = a0;
  let b0 = a0;
  let b1 = a0;
  let b2 = a0;
  let b3 = a0;
  if (continues) {
    a0 = v128.load(y);
    b0 = v128.load(y + yApart);
    a1 = v128.load(y + yStride);
    b1 = v128.load(y + yStride + yApart);
    a2 = v128.load(y + yStride * 2);
    b2 = v128.load(y + yStride * 2 + yApart);
    a3 = v128.load(y + yStride * 3);
    b3 = v128.load(y + yStride * 3 + yApart);
  }
  let other = groups + apart;
  for (const end = x + (<usize>k << 4); x != end; x += 16) {
    const a = column<T>(groups, mask);
    const b = column<T>(other, mask);
    const x0 = v128.load32_splat(x);
    const x1 = v128.load32_splat(x, 4);
    const x2 = v128.load32_splat(x, 8);
    const x3 = v128.load32_splat(x, 12);
    a0 = multiplyAdd(a, x0, a0);
    b0 = multiplyAdd(b, x0, b0);
    a1 = multiplyAdd(a, x1, a1);
    b1 = multiplyAdd(b, x1, b1);
    a2 = multiplyAdd(a, x2, a2);
    b2 = multiplyAdd(b, x2, b2);
    a3 = multiplyAdd(a, x3, a3);
    b3 = multiplyAdd(b, x3, b3);
    groups += sizeof<T>() << 2;
    other += sizeof<T>() << 2;
  }
  storeSums<T>(y, a0, groups);
  storeSums<T>(y + yApart, b0, other);
  y += yStride;
  storeSums<T>(y, a1, groups);
  storeSums<T>(y + yApart, b1, other);
  y += yStride;
  storeSums<T>(y, a2, groups);
  storeSums<T>(y + yApart, b2, other);
  y += yStride;
  storeSums<T>(y, a3, groups);
  storeSums<T>(y + yApart, b3, other);
}

/** Multiplies two groups of four rows by three columns of activations. */
function threeColumns<T>(groups: usize, apart: usize, x: usize, k: i32, y: usize, yApart: usize, yStride: usize): void {
  const mask = v128.load(F16_MASK);
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let a2 = a0;
  let b0 = a0;
  let b1 = a0;
  let b2 = a0;
  let other = groups + apart;
  for (const end = x + <usize>k * 12; x != end; x += 12) {
    const a = column<T>(groups, mask);
    const b = column<T>(other, mask);
    const x0 = v128.load32_splat(x);
    const x1 = v128.load32_splat(x, 4);
    const x2 = v128.load32_splat(x, 8);
    a0 = multiplyAdd(a, x0, a0);
    b0 = multiplyAdd(b, x0, b0);
    a1 = multiplyAdd(a, x1, a1);
    b1 = multiplyAdd(b, x1, b1);
    a2 = multiplyAdd(a, x2, a2);
    b2 = multiplyAdd(b, x2, b2);
    groups += sizeof<T>() << 2;
    other += sizeof<T>() << 2;
  }
  storeSums<T>(y, a0, groups);
  storeSums<T>(y + yApart, b0, other);
  y += yStride;
  storeSums<T>(y, a1, groups);
  storeSums<T>(y + yApart, b1, other);
  y += yStride;
  storeSums<T>(y, a2, groups);
  storeSums<T>(y + yApart, b2, other);
}

/** Multiplies four groups of four rows by two columns of activations. */
function twoColumns<T>(p: usize, apart: usize, x: usize, k: i32, y: usize, yApart: usize, yStride: usize): void {
  const mask = v128.load(F16_MASK);
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let c0 = a0;
  let c1 = a0;
  let d0 = a0;
  let d1 = a0;
  let q = p + apart;
  let r = q + apart;
  let s = r + apart;
  for (const end = x + (<usize>k << 3); x != end; x += 8) {
    const a = column<T>(p, mask);
    const b = column<T>(q, mask);
    const c = column<T>(r, mask);
    const d = column<T>(s, mask);
    const x0 = v128.load32_splat(x);
    const x1 = v128.load32_splat(x, 4);
    a0 = multiplyAdd(a, x0, a0);
    b0 = multiplyAdd(b, x0, b0);
    c0 = multiplyAdd(c, x0, c0);
    d0 = multiplyAdd(d, x0, d0);
    a1 = multiplyAdd(a, x1, a1);
    b1 = multiplyAdd(b, x1, b1);
    c1 = multiplyAdd(c, x1, c1);
    d1 = multiplyAdd(d, x1, d1);
    p += sizeof<T>() << 2;
    q += sizeof<T>() << 2;
    r += sizeof<T>() << 2;
    s += sizeof<T>() << 2;
  }
  storeSums<T>(y, a0, p);
  storeSums<T>(y + yStride, a1, p);
  y += yApart;
  storeSums<T>(y, b0, q);
  storeSums<T>(y + yStride, b1, q);
  y += yApart;
  storeSums<T>(y, c0, r);
  storeSums<T>(y + yStride, c1, r);
  y += yApart;
  storeSums<T>(y, d0, s);
  storeSums<T>(y + yStride, d1, s);
}

/**
 * Multiplies four groups of four rows by one column of activations. An iteration processes two columns of the matrix,
 * because the registers have room for both.
 */
function oneColumn<T>(p: usize, apart: usize, x: usize, k: i32, y: usize, yApart: usize): void {
  const mask = v128.load(F16_MASK);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let q = p + apart;
  let r = q + apart;
  let s = r + apart;
  for (const end = x + (<usize>k << 2); x != end; x += 8) {
    const x0 = v128.load32_splat(x);
    const x1 = v128.load32_splat(x, 4);
    a = multiplyAdd(nextColumn<T>(p, mask), x1, multiplyAdd(column<T>(p, mask), x0, a));
    b = multiplyAdd(nextColumn<T>(q, mask), x1, multiplyAdd(column<T>(q, mask), x0, b));
    c = multiplyAdd(nextColumn<T>(r, mask), x1, multiplyAdd(column<T>(r, mask), x0, c));
    d = multiplyAdd(nextColumn<T>(s, mask), x1, multiplyAdd(column<T>(s, mask), x0, d));
    p += sizeof<T>() << 3;
    q += sizeof<T>() << 3;
    r += sizeof<T>() << 3;
    s += sizeof<T>() << 3;
  }
  storeSums<T>(y, a, p);
  storeSums<T>(y + yApart, b, q);
  storeSums<T>(y + yApart * 2, c, r);
  storeSums<T>(y + yApart * 3, d, s);
}
