// Fit of a super-scale: expresses the scales of a super-block's blocks as small integers times one number. Called for the
// scales and for the mins.
import { sumOfLanes } from "../../../../wasm/kernels/arithmetic";
import { NEGLIGIBLE } from "./tile";

/** Number of trials on each side of the level `anchor` of fitScales(), and their distance in levels. */
const SIDE: i32 = 9;
const STEP: f32 = 0.1;
/** Number of rounds in which levels and scale are fitted to each other. */
const ROUNDS: i32 = 3;

/** Scales of a super-block's blocks, their mins, and the sums of their weights: the input of fitScales(). */
export const SCALES: usize = memory.data(64, 16);
export const MINS: usize = memory.data(64, 16);
export const SUMS: usize = memory.data(64, 16);

/** Results of sumUp(): weighted sums of scales times levels, and of squared levels. */
let products: f32 = 0;
let squares: f32 = 0;

/**
 * Finds a super-scale for `count` scales, so that scale = super-scale * level, with levels lowest..highest. The scale of
 * the largest magnitude gets about the level `anchor`. Minimises the squared error weighted by SUMS. Replaces the scales by
 * their levels (i8, from the beginning of the same memory). Returns the super-scale.
 */
export function fitScales(scales: usize, count: i32, anchor: f32, lowest: f32, highest: f32): f32 {
  let low: f32 = 0, high: f32 = 0;
  for (let i = 0; i < count; i++) {
    low = min(low, load<f32>(scales + (i << 2)));
    high = max(high, load<f32>(scales + (i << 2)));
  }
  const peak = lowest < 0 && -low > high ? low : high;
  let superScale: f32 = 0;
  if (abs(peak) > NEGLIGIBLE) {
    let best: f32 = -1, trial: f32 = 0;
    for (let i = -SIDE; i <= SIDE; i++) {
      const next = (anchor + STEP * <f32>i) / peak;
      sumUp(scales, count, next, lowest, highest);
      if (squares > 0 && products * products > best * squares) {
        best = products * products / squares;
        trial = next;
      }
    }
    for (let round = 0; round < ROUNDS; round++) {
      sumUp(scales, count, trial, lowest, highest);
      superScale = squares > 0 ? products / squares : 0;
      trial = superScale == 0 ? 0 : 1 / superScale;
    }
  }
  const factor = superScale == 0 ? <f32>0 : 1 / superScale;
  for (let i = 0; i < count; i++) {
    const level = nearest(load<f32>(scales + (i << 2)) * factor);
    store<i8>(scales + i, <i8>max(min(level, highest), lowest));
  }
  return superScale;
}

/** Computes `products` and `squares` over all scales. `factor` maps scales to levels. */
function sumUp(scales: usize, count: i32, factor: f32, lowest: f32, highest: f32): void {
  const factors = f32x4.splat(factor), floor = f32x4.splat(lowest), ceiling = f32x4.splat(highest);
  let both = f32x4.splat(0), square = both;
  for (let at: usize = 0; at < <usize>count << 2; at += 16) {
    const x = v128.load(scales + at), weight = v128.load(SUMS + at);
    const level = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.mul(x, factors)), ceiling), floor);
    const weighted = f32x4.mul(weight, level);
    both = f32x4.add(both, f32x4.mul(weighted, x));
    square = f32x4.add(square, f32x4.mul(weighted, level));
  }
  products = sumOfLanes(both);
  squares = sumOfLanes(square);
}
