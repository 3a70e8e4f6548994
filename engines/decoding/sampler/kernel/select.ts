// Candidates of the filters: the few likely tokens of a row are gathered, then the likeliest of them are kept, without
// sorting. Candidates stay in id order, so among equal logits the lower id wins.
import { BINS, BIN_BITS, BLOCK_BYTES, blockCount, histogram, ids, keys, maxima, row, weights } from "./layout";
import { peak, reaches, weigh } from "./scan";

/** Argument of gather() for no ceiling: the comparison `logit >= NaN` is always false. */
export const NO_CEILING: f32 = NaN;

const LOWEST: f32 = -3.4028234663852886e38;
const TINY: f64 = 1e-300;

/**
 * Gathers the tokens with floor <= logit < ceiling: their ids, and their logits in `weights`. Skips -inf
 * and NaN. Returns their number.
 */
export function gather(floor: f32, ceiling: f32): i32 {
  const least = f32x4.splat(max(floor, LOWEST));
  const above = f32x4.splat(ceiling);
  let count: usize = 0;
  for (let block = 0; block < blockCount; block++) {
    if (!reaches(block, least)) continue;
    const start = row + <usize>block * BLOCK_BYTES;
    for (let at = start; at < start + BLOCK_BYTES; at += 16) {
      const x = v128.load(at);
      let hits = i32x4.bitmask(v128.andnot(f32x4.ge(x, least), f32x4.ge(x, above)));
      while (hits != 0) {
        const hit = at + (<usize>ctz(hits) << 2);
        store<i32>(ids + count, <i32>((hit - row) >> 2));
        store<f32>(weights + count, load<f32>(hit));
        count += 4;
        hits &= hits - 1;
      }
    }
  }
  return <i32>(count >> 2);
}

/**
 * Computes the key of each candidate from its logit in `weights`. The key is the number of representable floats between
 * the logit and the peak, so lower keys are likelier.
 */
export function rank(count: i32): void {
  const top = orderedBits(f32x4.splat(peak));
  for (let at: usize = 0; at < <usize>count << 2; at += 16) {
    v128.store(keys + at, i32x4.sub(top, orderedBits(v128.load(weights + at))));
  }
}

/** Replaces the candidates' logits in `weights` by their weights. */
export function weighAll(count: i32, scale: f32): void {
  const top = f32x4.splat(peak);
  const factor = f32x4.splat(scale);
  for (let at: usize = 0; at < <usize>count << 2; at += 16) {
    v128.store(weights + at, weigh(v128.load(weights + at), top, factor));
  }
}

/** Replaces the contents of `weights` by the candidates' logits. */
export function reload(count: i32): void {
  for (let at: usize = 0; at < <usize>count << 2; at += 4) {
    store<f32>(weights + at, load<f32>(row + (<usize>load<i32>(ids + at) << 2)));
  }
}

/** Sets the weight of every candidate to 1, so that keepHeaviest() keeps a given number of candidates. */
export function countAll(count: i32): void {
  for (let at: usize = 0; at < <usize>count << 2; at += 16) v128.store(weights + at, f32x4.splat(1));
}

export function sumAll(count: i32): f64 {
  let sum: f64 = 0;
  for (let at: usize = 0; at < <usize>count << 2; at += 4) sum += load<f32>(weights + at);
  return sum;
}

/**
 * Keeps the smallest set of likeliest candidates whose total weight reaches `target`, at
 * least one. Returns their number.
 */
export function keepHeaviest(count: i32, target: f64): i32 {
  findCut(count, max(target, TINY));
  let kept: usize = 0;
  for (let at: usize = 0; at < <usize>count << 2; at += 4) {
    const key = load<u32>(keys + at);
    if (key > cutHigh) continue;
    const weight = load<f32>(weights + at);
    if (key >= cutLow) {
      if (cutWeight <= 0) continue;
      cutWeight -= weight;
    }
    move(at, kept);
    kept += 4;
  }
  return <i32>(kept >> 2);
}

/** Keeps the candidates whose logit is at or above `floor`. Returns their number. */
export function keepAbove(count: i32, floor: f32): i32 {
  let kept: usize = 0;
  for (let at: usize = 0; at < <usize>count << 2; at += 4) {
    if (load<f32>(row + (<usize>load<i32>(ids + at) << 2)) < floor) continue;
    move(at, kept);
    kept += 4;
  }
  return <i32>(kept >> 2);
}

/**
 * Returns a floor that at least `count` tokens reach: the `count`-th largest of all block maxima, each of which is the
 * logit of one token. Returns the lowest finite float if there are too few maxima.
 */
export function floorOf(count: i32): f32 {
  const groups = blockCount << 2;
  if (count >= groups) return LOWEST;
  memory.copy(weights, maxima, <usize>groups << 2);
  rank(groups);
  countAll(groups);
  findCut(groups, count);
  let floor = peak;
  for (let at: usize = 0; at < <usize>groups << 2; at += 4) {
    if (load<u32>(keys + at) <= cutHigh) floor = min(floor, load<f32>(maxima + at));
  }
  return floor;
}

/**
 * Sorts the candidates by key; equal keys stay in id order. An insertion sort is enough,
 * because logprobs report few tokens.
 */
export function sort(count: i32): void {
  for (let i = 1; i < count; i++) {
    const key = load<u32>(keys + (<usize>i << 2));
    const id = load<i32>(ids + (<usize>i << 2));
    const weight = load<f32>(weights + (<usize>i << 2));
    let at = <usize>i << 2;
    for (; at > 0 && load<u32>(keys + at - 4) > key; at -= 4) move(at - 4, at);
    store<u32>(keys + at, key);
    store<i32>(ids + at, id);
    store<f32>(weights + at, weight);
  }
}

// Result of findCut(). Candidates with key < cutLow are kept. Candidates with cutLow <= key <= cutHigh have the same
// key. They are kept in id order until their total weight reaches cutWeight.
let cutLow: u32 = 0;
let cutHigh: u32 = 0;
let cutWeight: f64 = 0;

/**
 * Finds the cut with histograms of the keys. The first histogram covers all keys. Each further histogram covers one bin
 * of the previous histogram: the bin in which the running sum of the weights reaches `target`. Ends when that bin has
 * one key or one candidate.
 */
function findCut(count: i32, target: f64): void {
  cutLow = 0;
  cutHigh = u32.MAX_VALUE;
  cutWeight = target;
  let bits = 32 - <u32>clz(largestKey(count));
  const bins = histogram;
  const counts = histogram + (<usize>BINS << 3);
  while (true) {
    const shift = max<i32>(bits - BIN_BITS, 0);
    fillHistogram(count, shift);
    let bin: i32 = 0;
    while (bin < BINS && load<f64>(bins + (<usize>bin << 3)) < cutWeight) {
      cutWeight -= load<f64>(bins + (<usize>bin << 3));
      bin++;
    }
    if (bin == BINS) {
      cutWeight = Infinity; // reached only if rounding makes the sum of all bins smaller than the target
      return;
    }
    cutLow += <u32>bin << shift;
    cutHigh = cutLow + ((1 << shift) - 1);
    if (shift == 0 || load<i32>(counts + (<usize>bin << 2)) == 1) return;
    bits = shift;
  }
}

function fillHistogram(count: i32, shift: i32): void {
  const bins = histogram;
  const counts = histogram + (<usize>BINS << 3);
  memory.fill(histogram, 0, <usize>BINS * 12);
  const low = cutLow;
  const span = cutHigh - cutLow;
  for (let at: usize = 0; at < <usize>count << 2; at += 4) {
    const offset = load<u32>(keys + at) - low;
    if (offset > span) continue;
    const bin = <usize>(offset >> shift);
    const sum = bins + (bin << 3);
    const seen = counts + (bin << 2);
    store<f64>(sum, load<f64>(sum) + <f64>load<f32>(weights + at));
    store<i32>(seen, load<i32>(seen) + 1);
  }
}

function largestKey(count: i32): u32 {
  let largest: u32 = 0;
  for (let at: usize = 0; at < <usize>count << 2; at += 4) largest = max(largest, load<u32>(keys + at));
  return largest;
}

// @ts-ignore: decorator
@inline
function move(from: usize, to: usize): void {
  store<i32>(ids + to, load<i32>(ids + from));
  store<u32>(keys + to, load<u32>(keys + from));
  store<f32>(weights + to, load<f32>(weights + from));
}

/** Converts floats to signed integers that have the same sort order. Adding 0 turns -0 into 0. */
// @ts-ignore: decorator
@inline
function orderedBits(x: v128): v128 {
  const bits = f32x4.add(x, f32x4.splat(0));
  return v128.xor(bits, i32x4.shr_u(i32x4.shr_s(bits, 31), 1));
}
