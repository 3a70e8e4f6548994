// Format of blocks of 32 columns in GGUF files: a scale (F16; MXFP4: one byte), a min (F16) if the type has mins, the fifth bits
// of the levels if they have five, then the levels. Used by the encoders and the decoders.
import { MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 } from "../../../../wasm/kernels/types";

export const BLOCK: i32 = 32;
export const BLOCK_FLOATS: usize = 128;

/** Returns the size in bytes of a block of 32 columns in a number type. */
// @ts-expect-error: decorator
@inline
export function blockBytes(type: i32): usize {
  if (type == Q8_0) return 34;
  if (type == MXFP4) return 17;
  return 18 + (hasMins(type) ? 2 : 0) + (hasFifthBits(type) ? 4 : 0);
}

// @ts-expect-error: decorator
@inline
export function hasMins(type: i32): bool {
  return type == Q4_1 || type == Q5_1;
}

// @ts-expect-error: decorator
@inline
export function hasFifthBits(type: i32): bool {
  return type == Q5_0 || type == Q5_1;
}

/** Returns the number that is added to each level of a type when it is stored, so that the lowest level becomes 0; 0 = none. */
// @ts-expect-error: decorator
@inline
export function biasOf(type: i32): i32 {
  return type == Q4_0 ? 8 : type == Q5_0 ? 16 : 0;
}

/** Returns the highest level of a number type. */
// @ts-expect-error: decorator
@inline
export function highestOf(type: i32): i32 {
  if (type == Q8_0) return 127;
  if (type == Q4_0 || type == Q5_0) return biasOf(type) - 1;
  return hasFifthBits(type) ? 31 : 15;
}
