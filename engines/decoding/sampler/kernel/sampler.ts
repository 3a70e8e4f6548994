// Sampling kernel: the functions that the host may call. They work on one row of logits in memory and have no state
// except the buffers of layout.ts. row-kernel.ts specifies the results.
import { ids, weights } from "./layout";
import { findNucleus, nucleusFloor, nucleusLast } from "./nucleus";
import { cutRow, findPeak, peak, pick, scan, walk, weighRow } from "./scan";
import {
  NO_CEILING, countAll, floorOf, gather, keepAbove, keepHeaviest, rank, reload, sort, sumAll, weighAll,
} from "./select";

export { idsAt, maskAt, prepare, weightsAt } from "./layout";
export { restrict } from "./mask";
export { scan, weighRow } from "./scan";

/** Returns the token with the largest logit, the lowest id among equals; -1 if no token can be chosen. */
export function argmax(): i32 {
  return scan() == -Infinity ? -1 : findPeak();
}

/**
 * Draws a token from the tokens that remain after top-k (0 = off), top-p (1 = off) and min-p. `scale`: log2(e) /
 * temperature. `minDistance`: min-p as the maximum distance of a logit from the largest one (infinite = off). `u`:
 * uniform random number, 0 <= u < 1.
 */
export function draw(scale: f32, topK: i32, topP: f64, minDistance: f32, u: f64): i32 {
  if (scan() == -Infinity) return -1;
  if (peak == Infinity) return findPeak();
  const floor = peak - minDistance;
  if (topK > 0) return drawTop(scale, topK, topP, floor, u);
  if (topP < 1) return drawNucleus(scale, topP, floor, u);
  if (floor > -Infinity) return drawAbove(scale, floor, u);
  return pick(u * weighRow(scale));
}

/** Writes the ids and logits of the `limit` likeliest tokens of the row, likeliest first. Returns their number. */
export function top(limit: i32): i32 {
  if (scan() == -Infinity) return 0;
  const count = gatherTop(limit);
  reload(count);
  sort(count);
  return count;
}

function drawTop(scale: f32, topK: i32, topP: f64, floor: f32, u: f64): i32 {
  let count = gatherTop(topK);
  reload(count);
  weighAll(count, scale);
  if (topP < 1) count = keepHeaviest(count, topP * sumAll(count));
  return pickCandidate(keepAbove(count, floor), u);
}

function drawNucleus(scale: f32, topP: f64, floor: f32, u: f64): i32 {
  findNucleus(scale, topP * weighRow(scale));
  const sum = floor > nucleusFloor ? cutRow(floor, i32.MAX_VALUE) : cutRow(nucleusFloor, nucleusLast);
  return pick(u * sum);
}

function drawAbove(scale: f32, floor: f32, u: f64): i32 {
  const count = gather(floor, NO_CEILING);
  weighAll(count, scale);
  return pickCandidate(count, u);
}

function pickCandidate(count: i32, u: f64): i32 {
  return load<i32>(ids + (<usize>walk(weights, count, u * sumAll(count)) << 2));
}

function gatherTop(limit: i32): i32 {
  const count = gather(floorOf(limit), NO_CEILING);
  rank(count);
  if (count <= limit) return count;
  countAll(count);
  return keepHeaviest(count, limit);
}
