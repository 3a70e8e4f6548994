// Row arithmetic on floats, for example copying one thread's results into the joined results of all threads. Strides
// are in floats. Lengths need not be multiples of 4.
import { multiplyAdd } from "./arithmetic";

/** Computes target[i][c] = source[i][c] for n rows of `columns` floats. */
export function copyRows(source: usize, sourceStride: i32, target: usize, targetStride: i32, n: i32, columns: i32): void {
  const bytes = <usize>columns << 2;
  for (let i = 0; i < n; i++) {
    memory.copy(target, source, bytes);
    source += <usize>sourceStride << 2;
    target += <usize>targetStride << 2;
  }
}

/** Computes target[i][c] += source[i][c] for n rows of `columns` floats. */
export function addRows(source: usize, sourceStride: i32, target: usize, targetStride: i32, n: i32, columns: i32): void {
  const bytes = <usize>columns << 2;
  const vectorBytes = bytes & ~15;
  for (let i = 0; i < n; i++) {
    for (let at: usize = 0; at < vectorBytes; at += 16) {
      v128.store(target + at, f32x4.add(v128.load(target + at), v128.load(source + at)));
    }
    for (let at = vectorBytes; at < bytes; at += 4) {
      store<f32>(target + at, load<f32>(target + at) + load<f32>(source + at));
    }
    source += <usize>sourceStride << 2;
    target += <usize>targetStride << 2;
  }
}

/** Computes x[i][c] += vector[c] for n rows of `count` floats. */
export function addVector(x: usize, stride: i32, n: i32, vector: usize, count: i32): void {
  addRows(vector, 0, x, stride, n, count);
}

/** Computes x[i][c] *= vector[c] for n rows of `count` floats. */
export function scaleColumns(x: usize, stride: i32, n: i32, vector: usize, count: i32): void {
  const bytes = <usize>count << 2;
  const vectorBytes = bytes & ~15;
  for (let i = 0; i < n; i++) {
    for (let at: usize = 0; at < vectorBytes; at += 16) {
      v128.store(x + at, f32x4.mul(v128.load(x + at), v128.load(vector + at)));
    }
    for (let at = vectorBytes; at < bytes; at += 4) store<f32>(x + at, load<f32>(x + at) * load<f32>(vector + at));
    x += <usize>stride << 2;
  }
}

/** Computes x[i][c] *= factor for n rows of `columns` floats. */
export function scaleRows(x: usize, stride: i32, n: i32, columns: i32, factor: f32): void {
  const bytes = <usize>columns << 2;
  const vectorBytes = bytes & ~15;
  const factors = f32x4.splat(factor);
  for (let i = 0; i < n; i++) {
    for (let at: usize = 0; at < vectorBytes; at += 16) v128.store(x + at, f32x4.mul(v128.load(x + at), factors));
    for (let at = vectorBytes; at < bytes; at += 4) store<f32>(x + at, load<f32>(x + at) * factor);
    x += <usize>stride << 2;
  }
}

/**
 * Computes target[i][c] = source[i][c], clamped to the range from the float at the address `low` to the float at the address
 * `high`, for n rows of `columns` floats. `target` may equal `source`.
 */
export function clampRows(
  source: usize, sourceStride: i32, target: usize, targetStride: i32, n: i32, columns: i32, low: usize, high: usize,
): void {
  const bytes = <usize>columns << 2;
  const vectorBytes = bytes & ~15;
  const lows = v128.load32_splat(low);
  const highs = v128.load32_splat(high);
  for (let i = 0; i < n; i++) {
    for (let at: usize = 0; at < vectorBytes; at += 16) {
      v128.store(target + at, f32x4.min(f32x4.max(v128.load(source + at), lows), highs));
    }
    for (let at = vectorBytes; at < bytes; at += 4) {
      store<f32>(target + at, min<f32>(max<f32>(load<f32>(source + at), load<f32>(low)), load<f32>(high)));
    }
    source += <usize>sourceStride << 2;
    target += <usize>targetStride << 2;
  }
}

/** Computes target[c] += factor * source[c] for `columns` floats. */
export function addScaledRow(source: usize, target: usize, columns: i32, factor: f32): void {
  const bytes = <usize>columns << 2;
  const vectorBytes = bytes & ~15;
  const factors = f32x4.splat(factor);
  for (let at: usize = 0; at < vectorBytes; at += 16) {
    v128.store(target + at, multiplyAdd(v128.load(source + at), factors, v128.load(target + at)));
  }
  for (let at = vectorBytes; at < bytes; at += 4) {
    store<f32>(target + at, load<f32>(source + at) * factor + load<f32>(target + at));
  }
}
