// Layout of the kernel's memory. prepare() is called once, before everything else; nothing is allocated or moved after
// it, so the host may keep its views.
//
//   row         f32   the logits of one row, padded with -inf to whole blocks, so that no loop has a tail
//   rowWeights  f32   the weight of each: e^((logit - peak) / temperature)
//   maxima      v128  of each block, the four lanes' maxima; read as f32s, the maxima of four interleaved groups
//   sums        f64   of each block, the summed weight
//   ids, keys, weights   i32, u32, f32   a filter's candidates in id order (see select.ts)
//   histogram   f64, then i32   of each bin, the summed weight, then the count
//   mask        i32   a bit for each token of the row, four words a block

/** Floats in a block. A block's maximum lets a pass skip the block; its sum lets a draw skip it. */
export const BLOCK: i32 = 128;
export const BLOCK_BYTES: usize = <usize>BLOCK << 2;
/** Bins of a histogram: one for each value of BIN_BITS bits. */
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

/** Lays the memory out for rows of `vocabSize` floats and returns the address of the row. */
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
