// Codes of unevenly spaced levels: for each value the code of the nearest level, found by counting the midpoints below it.

/** Midpoints between adjacent levels of IQ4_NL. */
const IQ4_MIDPOINTS: usize = memory.data<f32>([
  -115.5, -93.5, -74, -57, -42, -28.5, -16, -4.5, 7, 19, 31.5, 45.5, 61, 79, 101,
]);
const IQ4_BOUNDS: i32 = 15;

/** Returns the codes of the levels of IQ4_NL that are nearest to 16 floats times `factor`. */
export function nearestCodes(at: usize, factor: f32): v128 {
  const factors = f32x4.splat(factor);
  const a = f32x4.mul(v128.load(at), factors), b = f32x4.mul(v128.load(at, 16), factors);
  const c = f32x4.mul(v128.load(at, 32), factors), d = f32x4.mul(v128.load(at, 48), factors);
  return countBounds(IQ4_MIDPOINTS, IQ4_BOUNDS, a, b, c, d);
}

/** Returns for each of 16 floats how many of `count` ascending bounds it reaches. */
// @ts-expect-error: decorator
@inline
export function countBounds(bounds: usize, count: i32, a: v128, b: v128, c: v128, d: v128): v128 {
  let reachedA = i32x4.splat(0), reachedB = reachedA, reachedC = reachedA, reachedD = reachedA;
  for (let i = 0; i < count; i++) {
    const bound = v128.load32_splat(bounds + (i << 2));
    reachedA = i32x4.sub(reachedA, f32x4.ge(a, bound));
    reachedB = i32x4.sub(reachedB, f32x4.ge(b, bound));
    reachedC = i32x4.sub(reachedC, f32x4.ge(c, bound));
    reachedD = i32x4.sub(reachedD, f32x4.ge(d, bound));
  }
  return i8x16.narrow_i16x8_s(
    i16x8.narrow_i32x4_s(reachedA, reachedB),
    i16x8.narrow_i32x4_s(reachedC, reachedD),
  );
}
