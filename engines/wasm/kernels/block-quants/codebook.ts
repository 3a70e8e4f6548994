// Codebooks of 4-bit types with unevenly spaced levels, and a look-up of 16 entries at once. Used by all code that
// reads such weights: the inner loops of block quants and k-quants, and reading rows back.

/** Levels of codes 0..15 in IQ4_NL and IQ4_XS. */
// @ts-expect-error: decorator
@inline
export function iq4Levels(): v128 {
  return i8x16(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

/** The same for MXFP4: floats with a sign, two bits of exponent and one of fraction, doubled. */
// @ts-expect-error: decorator
@inline
export function fp4Levels(): v128 {
  return i8x16(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}

/** The bytes of a table at 16 indices, all below 16: beyond that the variants differ. */
// @ts-expect-error: decorator
@inline
export function lookUp(table: v128, indices: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i8x16.relaxed_swizzle(table, indices);
  return i8x16.swizzle(table, indices);
}
