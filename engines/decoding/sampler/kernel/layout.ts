// Layout of the kernel's memory. prepare() is called once, before all other functions. Later, nothing is allocated or
// moved, so the host may keep its views of the memory.
//
//   row         f32   logits of one row, padded with -inf to whole blocks
//   rowWeights  f32   weight of each token: e^((logit - peak) / temperature)
//   maxima      v128  per block: maximum of each of the four SIMD lanes (every fourth token)
//   sums        f64   per block: sum of the weights
//   ids, keys, weights   i32, u32, f32   candidates of a filter, in id order (see select.ts)
//   histogram   f64, then i32   per bin: sum of the weights, then number of candidates
//   mask        i32   one bit per token of the row, four words per block

/**
 * Number of tokens in a block. A pass over the row skips a block if its maxima are too small. A draw uses
 * the sums to skip whole blocks.
 */
export const BLOCK: i32 = 128;
export const BLOCK_BYTES: usize = <usize>BLOCK << 2;
/** Number of key bits that select a bin of the histogram. */
export const BIN_BITS: i32 = 8;
export const BINS: i32 = 1 << BIN_BITS;

const PAGE: usize = 65536;

export let blockCount: i32 = 0;
export let row: usize = 0;
export let rowEnd: usize = 0;
export let rowWeights: usize = 0;
export let maxima: usize = 0;
export let sums: usize = 0;
export let ids: usize = 0;
export let keys: usize = 0;
export let weights: usize = 0;
export let histogram: usize = 0;
export let mask: usize = 0;

/** Allocates the memory for rows of `vocabSize` logits. Returns the address of the row. */
export function prepare(vocabSize: i32): usize {
  blockCount = (vocabSize + BLOCK - 1) / BLOCK;
  const rowBytes = <usize>blockCount * BLOCK_BYTES;
  row = (__heap_base + 15) & ~15;
  rowEnd = row + rowBytes;
  rowWeights = rowEnd;
  maxima = rowWeights + rowBytes;
  sums = maxima + (<usize>blockCount << 4);
  ids = sums + (<usize>(blockCount + 1) << 3 & ~15);
  keys = ids + rowBytes;
  weights = keys + rowBytes;
  histogram = weights + rowBytes;
  mask = histogram + <usize>BINS * 12;
  const end = mask + (<usize>blockCount << 4);
  const pages = <i32>((end + PAGE - 1) / PAGE) - memory.size();
  if (pages > 0 && memory.grow(pages) < 0) unreachable();
  for (let at = row + (<usize>vocabSize << 2); at < rowEnd; at += 4) store<f32>(at, -Infinity);
  return row;
}

export function idsAt(): usize {
  return ids;
}

export function weightsAt(): usize {
  return weights;
}

export function maskAt(): usize {
  return mask;
}
