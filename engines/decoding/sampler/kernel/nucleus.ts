// Top-p over a whole row: finds the least likely token of the nucleus (the smallest set of likeliest tokens with enough
// weight). It does not sort the tokens, and the nucleus may have any size.
import { ids, weights } from "./layout";
import { NO_CEILING, gather, keepHeaviest, rank, reload, weighAll } from "./select";
import { countAbove, massAbove, peak } from "./scan";

/**
 * Each search step lowers `floor` (a logit) by the amount that makes the weight of a token 2^DEPTH_STEP times smaller.
 */
const DEPTH_STEP: f32 = 4;
/** Weights of 2^-WEIGHTLESS or less, relative to the peak, are 0 (see weigh). */
const WEIGHTLESS: f32 = 126;
/** The search interval is halved until it contains at most this number of tokens. */
const FEW: i32 = 1024;
/**
 * Maximum number of halvings. After this number, the remaining logits are equal or nearly equal. keepHeaviest() then
 * finds the exact cut among them.
 */
const MAX_HALVINGS: i32 = 32;

/** Smallest logit in the nucleus, and the highest id of a token in the nucleus with that logit. */
export let nucleusFloor: f32 = 0;
export let nucleusLast: i32 = 0;

// State of the search: the smallest logit of the nucleus is in [floor, ceiling). massOver and countOver: total weight
// and number of the tokens at or above the ceiling.
let floor: f32 = 0;
let ceiling: f32 = NO_CEILING;
let massOver: f64 = 0;
let countOver: i32 = 0;

/** Finds the smallest set of likeliest tokens whose total weight reaches `target`. Call it after weighRow(). */
export function findNucleus(scale: f32, target: f64): void {
  narrow(bracket(scale, target), target);
  let count = gather(floor, ceiling);
  rank(count);
  weighAll(count, scale);
  count = keepHeaviest(count, target - massOver);
  reload(count);
  nucleusFloor = count > 0 ? peak : floor; // count is 0 if rounding makes the sum of all weights smaller than the target
  nucleusLast = i32.MAX_VALUE;
  for (let i = 0; i < count; i++) {
    const logit = load<f32>(weights + (<usize>i << 2));
    if (logit > nucleusFloor) continue;
    nucleusFloor = logit;
    nucleusLast = load<i32>(ids + (<usize>i << 2));
  }
}

/**
 * Lowers the floor until the tokens at or above it have a total weight of `target`, or no token below it has weight.
 * Returns the number of tokens in [floor, ceiling).
 */
function bracket(scale: f32, target: f64): i32 {
  const step = DEPTH_STEP / scale;
  ceiling = NO_CEILING;
  massOver = 0;
  countOver = 0;
  for (let depth = step; ; depth += step) {
    floor = peak - depth;
    const mass = massAbove(floor);
    if (mass >= target || !(depth * scale < WEIGHTLESS)) return countAbove - countOver;
    ceiling = floor;
    massOver = mass;
    countOver = countAbove;
  }
  return 0;
}

/**
 * Halves the interval [floor, ceiling) until it contains at most FEW tokens. `between`:
 * number of tokens in it at the start.
 */
function narrow(between: i32, target: f64): void {
  for (let halving = 0; between > FEW && halving < MAX_HALVINGS; halving++) {
    const middle = floor / 2 + (isNaN<f32>(ceiling) ? peak : ceiling) / 2;
    const mass = massAbove(middle);
    if (mass >= target) {
      between = countAbove - countOver;
      floor = middle;
    } else {
      between -= countAbove - countOver;
      ceiling = middle;
      massOver = mass;
      countOver = countAbove;
    }
  }
}
