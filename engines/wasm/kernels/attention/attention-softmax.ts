// Online softmax of attention, updated after every tile of tokens. For each query, attend() writes a record: the
// weighted sum of the values, the largest score so far and the sum of the weights so far. The values are not yet
// divided by the sum of the weights. This file also merges the records that several threads wrote for the same query.
import { largestLane, multiplyAdd, sumOfLanes } from "../arithmetic";
import { exponential, hyperbolicTangent } from "../exponential";

/**
 * Number of floats that follow the weighted sum of the values in a query's record: the largest score, the sum of the
 * weights, and padding.
 */
export const TAIL: i32 = 4;
/** Value of masked scores, and initial value of the largest score. It is less than every real score. */
const NOTHING: f32 = -1e30;
/**
 * A score that is more than 60 below the largest score gets weight 0. Its weight would be too small to change the sum,
 * and products with subnormal numbers are slow.
 */
const WEIGHTLESS: f32 = -60;

/** Initialises `count` consecutive records (attention results), each for a query that has not attended to any token. */
export function beginRecords(count: i32, headLength: i32, records: usize): void {
  const bytes = <usize>(headLength + TAIL) << 2;
  memory.fill(records, 0, <usize>count * bytes);
  for (let i = 0; i < count; i++) store<f32>(records + <usize>i * bytes + (<usize>headLength << 2), NOTHING);
}

/** Multiplies the scores by `scale` and applies the soft cap: cap * tanh(score / cap). */
export function capScores(scores: usize, vectors: i32, scale: f32, cap: f32): void {
  const inwards = f32x4.splat(scale / cap);
  const outwards = f32x4.splat(cap);
  for (const end = scores + (<usize>vectors << 4); scores < end; scores += 16) {
    v128.store(scores, f32x4.mul(hyperbolicTangent(f32x4.mul(v128.load(scores), inwards)), outwards));
  }
}

/** Multiplies the scores by `scale` and lowers each by `slope` times the distance of its token from token `own`. */
export function biasScores(scores: usize, vectors: i32, scale: f32, slope: f32, own: i32): void {
  const factor = f32x4.splat(scale);
  const slopes = f32x4.splat(-slope);
  let distance = f32x4.sub(f32x4(0, 1, 2, 3), f32x4.splat(<f32>own));
  for (const end = scores + (<usize>vectors << 4); scores < end; scores += 16) {
    v128.store(scores, multiplyAdd(f32x4.abs(distance), slopes, f32x4.mul(v128.load(scores), factor)));
    distance = f32x4.add(distance, f32x4.splat(4));
  }
}

/** Masks all scores except those of tokens `first` to `end` (exclusive). This range must not be empty. */
export function hideScores(scores: usize, vectors: i32, first: i32, end: i32): void {
  const firsts = i32x4.splat(first);
  const ends = i32x4.splat(end);
  const nothing = f32x4.splat(NOTHING);
  let token = i32x4(0, 1, 2, 3);
  for (const scoresEnd = scores + (<usize>vectors << 4); scores < scoresEnd; scores += 16) {
    const seen = v128.and(i32x4.ge_s(token, firsts), i32x4.lt_s(token, ends));
    v128.store(scores, v128.bitselect(v128.load(scores), nothing, seen));
    token = i32x4.add(token, i32x4.splat(4));
  }
}

/**
 * Multiplies one query's scores of a tile by `scale`, replaces them by softmax weights, and updates the maximum and the sum
 * so far, which are at the end of the query's record (`tail`). Returns the factor by which the caller must multiply the values
 * that the record has accumulated.
 */
export function weigh(scores: usize, vectors: i32, scale: f32, tail: usize): f32 {
  const end = scores + (<usize>vectors << 4);
  let largest = f32x4.splat(NOTHING);
  for (let at = scores; at < end; at += 16) largest = f32x4.pmax(largest, v128.load(at));
  const factor = f32x4.splat(scale);
  const before = v128.load32_splat(tail);
  const peak = f32x4.pmax(before, f32x4.mul(largestLane(largest), factor));
  const least = f32x4.neg(peak);
  let sum = f32x4.splat(0);
  for (let at = scores; at < end; at += 16) {
    const weight = weightOf(multiplyAdd(v128.load(at), factor, least));
    v128.store(at, weight);
    sum = f32x4.add(sum, weight);
  }
  const rescale = f32x4.extract_lane(weightOf(f32x4.sub(before, peak)), 0);
  v128.store32_lane(tail, peak, 0);
  store<f32>(tail, load<f32>(tail, 4) * rescale + sumOfLanes(sum), 4);
  return rescale;
}

// @ts-expect-error: decorator
@inline
function weightOf(distance: v128): v128 {
  return v128.and(exponential(distance), f32x4.gt(distance, f32x4.splat(WEIGHTLESS)));
}

export function mergeAttention(
  partials: usize, partBytes: i32, parts: i32, n: i32, heads: i32, headLength: i32, out: usize, stride: i32,
): void {
  const valueBytes = <usize>headLength << 2;
  for (let i = 0; i < n; i++) {
    let to = out + (<usize>(i * stride) << 2);
    for (let head = 0; head < heads; head++) {
      mergeHead(partials, <usize>partBytes, parts, valueBytes, to);
      partials += valueBytes + (TAIL << 2);
      to += valueBytes;
    }
  }
}

function mergeHead(partial: usize, partBytes: usize, parts: i32, valueBytes: usize, out: usize): void {
  const end = partial + <usize>parts * partBytes;
  let peak = NOTHING;
  for (let part = partial; part < end; part += partBytes) peak = max(peak, load<f32>(part + valueBytes));
  let sum: f32 = 0;
  for (let part = partial; part < end; part += partBytes) {
    const weight = f32x4.extract_lane(weightOf(f32x4.splat(load<f32>(part + valueBytes) - peak)), 0);
    // Stores the weight of the record in the record's padding.
    store<f32>(part + valueBytes, weight, 8);
    sum += weight * load<f32>(part + valueBytes, 4);
  }
  const inverse: f32 = sum > 0 ? 1 / sum : 0;
  for (let at: usize = 0; at < valueBytes; at += 16) {
    let total = f32x4.splat(0);
    for (let part = partial; part < end; part += partBytes) {
      total = f32x4.add(total, f32x4.mul(v128.load(part + at), v128.load32_splat(part + valueBytes, 8)));
    }
    v128.store(out + at, f32x4.mul(total, f32x4.splat(inverse)));
  }
}
