// Passes over a whole row: they find the maximum, compute the weights and their sums, and draw a token. Comparisons
// with NaN are false, so NaN counts as -inf.
import { BLOCK, BLOCK_BYTES, blockCount, maxima, row, rowEnd, rowWeights, sums } from "./layout";

/** The largest logit of the last scan(); -inf if no token can be chosen. */
export let peak: f32 = 0;
/** Number of tokens at or above the floor of the last massAbove() call. */
export let countAbove: i32 = 0;

/**
 * Computes the maxima of all blocks and of the row. Returns the maximum of the row. Call it
 * before any other pass over a row.
 */
export function scan(): f32 {
  let best = f32x4.splat(-Infinity);
  let out = maxima;
  for (let at = row; at < rowEnd; at += BLOCK_BYTES) {
    let a = f32x4.splat(-Infinity);
    let b = a;
    for (let vector: usize = 0; vector < BLOCK_BYTES; vector += 64) {
      a = f32x4.pmax(a, v128.load(at + vector));
      b = f32x4.pmax(b, v128.load(at + vector, 16));
      a = f32x4.pmax(a, v128.load(at + vector, 32));
      b = f32x4.pmax(b, v128.load(at + vector, 48));
    }
    a = f32x4.pmax(a, b);
    v128.store(out, a);
    best = f32x4.pmax(best, a);
    out += 16;
  }
  peak = max(
    max(f32x4.extract_lane(best, 0), f32x4.extract_lane(best, 1)),
    max(f32x4.extract_lane(best, 2), f32x4.extract_lane(best, 3)),
  );
  return peak;
}

/** Returns the lowest id of a token with the largest logit. */
export function findPeak(): i32 {
  const wanted = f32x4.splat(peak);
  let block = 0;
  while (!v128.any_true(f32x4.eq(v128.load(maxima + (<usize>block << 4)), wanted))) block++;
  let at = row + <usize>block * BLOCK_BYTES;
  let hits = 0;
  while ((hits = i32x4.bitmask(f32x4.eq(v128.load(at), wanted))) == 0) at += 16;
  return (<i32>(at - row) >> 2) + ctz(hits);
}

/** Whether a block has a logit >= `least`. All lanes of `least` have the same value. */
// @ts-ignore: decorator
@inline
export function reaches(block: i32, least: v128): bool {
  return v128.any_true(f32x4.ge(v128.load(maxima + (<usize>block << 4)), least));
}

/**
 * Computes 2^(scale * (x - top)) in each lane, for x <= top. Uses a polynomial of degree 5 on [-1/2, 1/2]; near the
 * top, the relative error is below 1e-6. Adding `round` leaves the nearest integer in the low bits of the mantissa.
 * This integer is then shifted into the exponent. Results that would be denormal, and NaN, become 0.
 */
// @ts-ignore: decorator
@inline
export function weigh(x: v128, top: v128, scale: v128): v128 {
  const round = f32x4.splat(12582912.0);
  const z = f32x4.mul(f32x4.sub(x, top), scale);
  const shifted = f32x4.add(z, round);
  const f = f32x4.sub(z, f32x4.sub(shifted, round));
  let p = f32x4.add(f32x4.mul(f, f32x4.splat(0.00133813021)), f32x4.splat(0.00966636837));
  p = f32x4.add(f32x4.mul(f, p), f32x4.splat(0.0555038117));
  p = f32x4.add(f32x4.mul(f, p), f32x4.splat(0.240223497));
  p = f32x4.add(f32x4.mul(f, p), f32x4.splat(0.693147182));
  p = f32x4.add(f32x4.mul(f, p), f32x4.splat(1));
  const power = i32x4.add(p, i32x4.shl(shifted, 23));
  return v128.and(power, f32x4.gt(z, f32x4.splat(-126)));
}

/**
 * Computes the weights of all tokens and the sums of the blocks. `scale`: log2(e) /
 * temperature. Returns the total weight.
 */
export function weighRow(scale: f32): f64 {
  const top = f32x4.splat(peak);
  const factor = f32x4.splat(scale);
  let all: f64 = 0;
  let from = row;
  let to = rowWeights;
  for (let block = 0; block < blockCount; block++) {
    let a = f32x4.splat(0);
    let b = a;
    for (const end = from + BLOCK_BYTES; from < end; from += 32, to += 32) {
      const even = weigh(v128.load(from), top, factor);
      const odd = weigh(v128.load(from, 16), top, factor);
      v128.store(to, even);
      v128.store(to, odd, 16);
      a = f32x4.add(a, even);
      b = f32x4.add(b, odd);
    }
    all += storeSum(block, f32x4.add(a, b));
  }
  return all;
}

/** Returns the total weight of the tokens whose logit is at or above `floor`. Call it after weighRow(). */
export function massAbove(floor: f32): f64 {
  const least = f32x4.splat(floor);
  let mass: f64 = 0;
  let count = i32x4.splat(0);
  for (let block = 0; block < blockCount; block++) {
    if (!reaches(block, least)) continue;
    const start = <usize>block * BLOCK_BYTES;
    let sum = f32x4.splat(0);
    for (let at = start; at < start + BLOCK_BYTES; at += 16) {
      const kept = f32x4.ge(v128.load(row + at), least);
      sum = f32x4.add(sum, v128.and(kept, v128.load(rowWeights + at)));
      count = i32x4.sub(count, kept);
    }
    mass += sumLanes(sum);
  }
  const pairs = i32x4.add(count, v128.shuffle<i32>(count, count, 2, 3, 0, 1));
  countAbove = i32x4.extract_lane(pairs, 0) + i32x4.extract_lane(pairs, 1);
  return mass;
}

/**
 * Keeps the weights of the tokens above `floor`, and of the tokens equal to `floor` with an id of at most `lastEqual`.
 * Returns the total weight of these tokens.
 */
export function cutRow(floor: f32, lastEqual: i32): f64 {
  const lastBlock = lastEqual / BLOCK;
  let all: f64 = 0;
  for (let block = 0; block < blockCount; block++) {
    const start = <usize>block * BLOCK_BYTES;
    if (block == lastBlock) dropEqual(floor, <usize>(lastEqual + 1) << 2, start + BLOCK_BYTES);
    const limit = f32x4.splat(floor);
    let sum = f32x4.splat(0);
    if (reaches(block, limit)) {
      for (let at = start; at < start + BLOCK_BYTES; at += 16) {
        const x = v128.load(row + at);
        const kept = block > lastBlock ? f32x4.gt(x, limit) : f32x4.ge(x, limit);
        const weight = v128.and(kept, v128.load(rowWeights + at));
        v128.store(rowWeights + at, weight);
        sum = f32x4.add(sum, weight);
      }
    }
    all += storeSum(block, sum);
  }
  return all;
}

function dropEqual(floor: f32, from: usize, to: usize): void {
  for (let at = from; at < to; at += 4) if (load<f32>(row + at) == floor) store<f32>(rowWeights + at, 0);
}

/**
 * Returns the token at which the running sum of the weights, in id order, exceeds `target`. Finds the block by its sum,
 * then the token in the block.
 */
export function pick(target: f64): i32 {
  let found = 0;
  for (let block = 0; block < blockCount; block++) {
    const sum = load<f64>(sums + (<usize>block << 3));
    if (sum == 0) continue;
    found = block;
    if (target < sum) break;
    target -= sum;
  }
  return found * BLOCK + walk(rowWeights + <usize>found * BLOCK_BYTES, BLOCK, target);
}

/**
 * Returns the index of the first of `count` weights at which their running sum exceeds `target`. Skips weights of 0.
 */
export function walk(start: usize, count: i32, target: f64): i32 {
  let last = 0;
  for (let i = 0; i < count; i++) {
    const weight = <f64>load<f32>(start + (<usize>i << 2));
    if (weight == 0) continue;
    last = i;
    if (target < weight) break;
    target -= weight;
  }
  return last;
}

// @ts-ignore: decorator
@inline
function storeSum(block: i32, lanes: v128): f64 {
  const sum = sumLanes(lanes);
  store<f64>(sums + (<usize>block << 3), sum);
  return sum;
}

// @ts-ignore: decorator
@inline
function sumLanes(v: v128): f64 {
  const low = f64x2.promote_low_f32x4(v);
  const high = f64x2.promote_low_f32x4(v128.shuffle<f32>(v, v, 2, 3, 2, 3));
  const pair = f64x2.add(low, high);
  return f64x2.extract_lane(pair, 0) + f64x2.extract_lane(pair, 1);
}
