// Owns arithmetic that both twins have, each in its own way; all other kernels may use it.

/** a * b + c, in one instruction where relaxed SIMD has it. */
// @ts-ignore: decorator
@inline
export function multiplyAdd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}
