// Codebooks of the 4-bit types whose levels are unevenly spaced, and a look-up of 16 codes at once. Used by the inner
// loops of block quants and k-quants, and by the code that unpacks single rows.

/** Levels of codes 0..15 in IQ4_NL and IQ4_XS. */
// @ts-expect-error: decorator
@inline
export function iq4Levels(): v128 {
  return i8x16(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

/**
 * Levels of codes 0..15 in MXFP4, doubled. A code is a float with a sign bit, two exponent bits and one fraction bit.
 */
// @ts-expect-error: decorator
@inline
export function fp4Levels(): v128 {
  return i8x16(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}

/**
 * Looks up 16 indices in a table of 16 bytes. All indices must be below 16, because relaxed SIMD may give other results
 * for larger indices.
 */
// @ts-expect-error: decorator
@inline
export function lookUp(table: v128, indices: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i8x16.relaxed_swizzle(table, indices);
  return i8x16.swizzle(table, indices);
}
