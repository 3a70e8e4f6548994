// Top-p over a whole row: finds the least likely token of the nucleus without sorting, for a nucleus of any size.
import { ids, weights } from "./layout";
import { NO_CEILING, gather, keepHeaviest, rank, reload, weighAll } from "./select";
import { countAbove, massAbove, peak } from "./scan";

/** Factor between two depths of the search, as a power of two of the weight. */
const DEPTH_STEP: f32 = 4;
/** Powers of two below the peak at which a weight is 0. */
const WEIGHTLESS: f32 = 126;
/** Number of tokens small enough to gather. */
const FEW: i32 = 1024;
/** Halvings after which the remaining tokens are equal, or nearly: the cut among them is exact in any case. */
const MAX_HALVINGS: i32 = 32;

/** The logit of the nucleus' least likely token, and the highest id of the nucleus with that logit. */
export let nucleusFloor: f32 = 0;
export let nucleusLast: i32 = 0;

// floor <= the wanted logit < ceiling; massOver and countOver are of the tokens at or above the ceiling.
let floor: f32 = 0;
let ceiling: f32 = NO_CEILING;
let massOver: f64 = 0;
let countOver: i32 = 0;

/** Finds the smallest set of likeliest tokens of a weighed row that weighs `target`. */
export function findNucleus(scale: f32, target: f64): void {
  narrow(bracket(scale, target), target);
  let count = gather(floor, ceiling);
  rank(count);
  weighAll(count, scale);
  count = keepHeaviest(count, target - massOver);
  reload(count);
  nucleusFloor = count > 0 ? peak : floor; // none: rounding left the sum of all below the target
  nucleusLast = i32.MAX_VALUE;
  for (let i = 0; i < count; i++) {
    const logit = load<f32>(weights + (<usize>i << 2));
    if (logit > nucleusFloor) continue;
    nucleusFloor = logit;
    nucleusLast = load<i32>(ids + (<usize>i << 2));
  }
}

/**
 * Lowers the floor until the tokens above it weigh `target`, or no weight is left. Returns the number of tokens between
 * floor and ceiling.
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

/** Halves the interval until few of the `between` tokens in it are left. */
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
