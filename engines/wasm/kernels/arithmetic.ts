// Vector arithmetic that all other kernels may use. multiplyAdd() differs between the builds with and without relaxed
// SIMD.

/** Returns a * b + c. With relaxed SIMD, this is one instruction. */
// @ts-ignore: decorator
@inline
export function multiplyAdd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

// @ts-ignore: decorator
@inline
export function sumOfLanes(x: v128): f32 {
  const pairs = f32x4.add(x, i64x2.shuffle(x, x, 1, 0));
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
}

/**
 * Returns a vector in which every lane has the value of the largest lane. A scalar max would be a branch, which is
 * mispredicted half of the time.
 */
// @ts-ignore: decorator
@inline
export function largestLane(x: v128): v128 {
  const pairs = f32x4.pmax(x, i32x4.shuffle(x, x, 2, 3, 0, 1));
  return f32x4.pmax(pairs, i32x4.shuffle(pairs, pairs, 1, 0, 3, 2));
}
