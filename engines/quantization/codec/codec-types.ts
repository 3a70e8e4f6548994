// Number types that BlockCodec converts, by GGUF type number, and the range of values that each type can hold.

import { type TensorTypeName, tensorType } from "../../files/gguf/tensors.ts";

const encodable = [
  ...(["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"] as const),
  ...(["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"] as const),
] satisfies readonly TensorTypeName[];

/** Types that rows of floats can be encoded in. */
export const encodableTypes: ReadonlySet<number> = new Set(encodable.map(tensorType));

/** Types that rows can be decoded from. The codebook types of less than 4 bits (IQ1, IQ2, IQ3) are not among them. */
export const decodableTypes: ReadonlySet<number> = new Set(encodableTypes);

const exactTypes: ReadonlySet<number> = new Set((["F32", "F16", "BF16", "Q8_0"] as const).map(tensorType));

/** Whether the encoder of a type minimises errors, so that the importance of columns has an effect. */
export function usesImportance(type: number): boolean {
  return !exactTypes.has(type);
}

const largestF32 = 3.4028234663852886e38;
const largestF16 = 65_504;
const largestBF16 = 3.3895313892515355e38;
/**
 * Largest magnitude in types with blocks, unless stated otherwise below: the largest F16 scale times 8 (level -8 of Q4_0), minus a margin,
 * because the search for a scale may slightly exceed the largest value.
 */
const largestOfBlocks = 500_000;
/** Largest magnitude in types with mins, because the min of a block is stored as F16. */
const largestOfMins = 60_000;

const limits: ReadonlyMap<number, number> = new Map([
  [tensorType("F32"), largestF32],
  [tensorType("F16"), largestF16],
  [tensorType("BF16"), largestBF16],
  [tensorType("MXFP4"), largestF32],
  [tensorType("Q4_1"), largestOfMins],
  [tensorType("Q5_1"), largestOfMins],
]);

/** Returns the largest magnitude of a value that may be encoded in a type. Beyond it, the scales would not be finite. */
export function largestValue(type: number): number {
  return limits.get(type) ?? largestOfBlocks;
}
