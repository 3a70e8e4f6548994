// Norms and rope. Lengths need not be multiples of 4: the remainder is computed one float at a time.
import { sumOfLanes } from "../arithmetic";
import { addRows, copyRows, scaleRows } from "../rows";

/**
 * Computes out[i] = x[i] / sqrt(mean of x[i]^2 + epsilon) * weight, for n rows of k floats. Strides are in floats.
 * `out` may equal `x`. If the address `weight` is 0, the weights are 1.
 */
export function rmsNorm(
  x: usize, xStride: i32, weight: usize, out: usize, outStride: i32, n: i32, k: i32, epsilon: f32,
): void {
  for (let i = 0; i < n; i++) {
    const scale: f32 = 1 / sqrt<f32>(sumOfSquares(x, k) / <f32>k + epsilon);
    if (weight) multiplyRow(x, weight, out, k, scale);
    else {
      copyRows(x, 0, out, 0, 1, k);
      scaleRows(out, 0, 1, k, scale);
    }
    x += <usize>xStride << 2;
    out += <usize>outStride << 2;
  }
}

/** Computes out[c] = x[c] * scale * weight[c] for k floats. */
// @ts-expect-error: decorator
@inline
function multiplyRow(x: usize, weight: usize, out: usize, k: i32, scale: f32): void {
  const rowBytes = <usize>k << 2;
  const vectorBytes = rowBytes & ~15;
  const scales = f32x4.splat(scale);
  for (let at: usize = 0; at < vectorBytes; at += 16) {
    v128.store(out + at, f32x4.mul(f32x4.mul(v128.load(x + at), scales), v128.load(weight + at)));
  }
  for (let at = vectorBytes; at < rowBytes; at += 4) {
    store<f32>(out + at, load<f32>(x + at) * scale * load<f32>(weight + at));
  }
}

/**
 * Computes out[i] = (x[i] - mean) / sqrt(variance + epsilon) * weight + bias. Arguments are as in rmsNorm(). If the
 * address `bias` is 0, no bias is added.
 */
export function layerNorm(
  x: usize, xStride: i32, weight: usize, bias: usize, out: usize, outStride: i32, n: i32, k: i32, epsilon: f32,
): void {
  for (let i = 0; i < n; i++) {
    subtractMean(x, out, k);
    // The mean is subtracted before squaring. The difference mean(x^2) - mean(x)^2 would be imprecise if the variance
    // is small and the mean is large.
    rmsNorm(out, 0, weight, out, 0, 1, k, epsilon);
    if (bias) addRows(bias, 0, out, 0, 1, k);
    x += <usize>xStride << 2;
    out += <usize>outStride << 2;
  }
}

function subtractMean(x: usize, out: usize, k: i32): void {
  const rowBytes = <usize>k << 2;
  const vectorBytes = rowBytes & ~15;
  let sums = f32x4.splat(0);
  let rest: f32 = 0;
  for (let at: usize = 0; at < vectorBytes; at += 16) sums = f32x4.add(sums, v128.load(x + at));
  for (let at = vectorBytes; at < rowBytes; at += 4) rest += load<f32>(x + at);
  const mean: f32 = (sumOfLanes(sums) + rest) / <f32>k;
  for (let at: usize = 0; at < vectorBytes; at += 16) {
    v128.store(out + at, f32x4.sub(v128.load(x + at), f32x4.splat(mean)));
  }
  for (let at = vectorBytes; at < rowBytes; at += 4) store<f32>(out + at, load<f32>(x + at) - mean);
}

function sumOfSquares(x: usize, k: i32): f32 {
  const end = x + (<usize>k << 2);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (const blocksEnd = x + (<usize>(k & ~15) << 2); x < blocksEnd; x += 64) {
    a = f32x4.add(a, square(v128.load(x)));
    b = f32x4.add(b, square(v128.load(x, 16)));
    c = f32x4.add(c, square(v128.load(x, 32)));
    d = f32x4.add(d, square(v128.load(x, 48)));
  }
  a = f32x4.add(f32x4.add(a, b), f32x4.add(c, d));
  let sum = sumOfLanes(a);
  for (; x < end; x += 4) sum += load<f32>(x) * load<f32>(x);
  return sum;
}

// @ts-expect-error: decorator
@inline
function square(x: v128): v128 {
  return f32x4.mul(x, x);
}

/**
 * Rotates in place the first `rotated` floats of each of `heads` heads of n rows. `table` has rotated / 2 pairs (cos,
 * sin) for each row. Pair i is floats (2i, 2i + 1), or with `neox` floats (i, i + rotated / 2).
 */
export function rope(
  x: usize,
  stride: i32,
  n: i32,
  heads: i32,
  headLength: i32,
  rotated: i32,
  table: usize,
  neox: i32,
): void {
  for (let i = 0; i < n; i++) {
    let head = x;
    for (let h = 0; h < heads; h++) {
      if (neox) rotateHalves(head, rotated >> 1, table);
      else rotateNeighbours(head, rotated >> 1, table);
      head += <usize>headLength << 2;
    }
    x += <usize>stride << 2;
    table += <usize>rotated << 2;
  }
}

function rotateNeighbours(x: usize, pairs: i32, table: usize): void {
  const signs = f32x4(-0.0, 0.0, -0.0, 0.0);
  const end = x + (<usize>pairs << 3);
  for (const vectorsEnd = x + (<usize>(pairs & ~1) << 3); x < vectorsEnd; x += 16) {
    const both = v128.load(x);
    const turn = v128.load(table);
    const cosines = v128.shuffle<i32>(turn, turn, 0, 0, 2, 2);
    const sines = v128.xor(v128.shuffle<i32>(turn, turn, 1, 1, 3, 3), signs);
    const swapped = v128.shuffle<i32>(both, both, 1, 0, 3, 2);
    v128.store(x, f32x4.add(f32x4.mul(both, cosines), f32x4.mul(swapped, sines)));
    table += 16;
  }
  if (x < end) rotatePair(x, x + 4, table);
}

function rotateHalves(x: usize, pairs: i32, table: usize): void {
  const half = <usize>pairs << 2;
  const end = x + half;
  for (const vectorsEnd = x + (half & ~15); x < vectorsEnd; x += 16) {
    const low = v128.load(x);
    const high = v128.load(x + half);
    const cosines = v128.shuffle<i32>(v128.load(table), v128.load(table, 16), 0, 2, 4, 6);
    const sines = v128.shuffle<i32>(v128.load(table), v128.load(table, 16), 1, 3, 5, 7);
    v128.store(x, f32x4.sub(f32x4.mul(low, cosines), f32x4.mul(high, sines)));
    v128.store(x + half, f32x4.add(f32x4.mul(low, sines), f32x4.mul(high, cosines)));
    table += 32;
  }
  for (; x < end; x += 4) {
    rotatePair(x, x + half, table);
    table += 8;
  }
}

function rotatePair(first: usize, second: usize, turn: usize): void {
  const a = load<f32>(first);
  const b = load<f32>(second);
  const cosine = load<f32>(turn);
  const sine = load<f32>(turn, 4);
  store<f32>(first, a * cosine - b * sine);
  store<f32>(second, a * sine + b * cosine);
}
