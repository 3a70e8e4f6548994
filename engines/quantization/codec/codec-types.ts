// Number types that BlockCodec converts, by GGUF type number, and the range of values that each type can hold.

const f32 = 0;
const f16 = 1;
const bf16 = 30;
const mxfp4 = 39;
const q4_1 = 3;
const q5_1 = 7;
const [q4_0, q5_0, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs] = [2, 6, 8, 10, 11, 12, 13, 14, 20, 23];

/** Types that rows of floats can be encoded in. */
export const encodableTypes: ReadonlySet<number> = new Set([
  ...[f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0],
  ...[q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4],
]);

/** Types that rows can be decoded from. The codebook types of less than 4 bits (IQ1, IQ2, IQ3) are not among them. */
export const decodableTypes: ReadonlySet<number> = new Set(encodableTypes);

/** Whether the encoder of a type minimises errors, so that the importance of columns has an effect. */
export function usesImportance(type: number): boolean {
  return ![f32, f16, bf16, q8_0].includes(type);
}

const largestF32 = 3.4028234663852886e38;
const largestF16 = 65_504;
const largestBF16 = 3.3895313892515355e38;
/** Largest scale times levels of the block types, less a margin, because a search may exceed the largest value a little. */
const largestOfBlocks = 500_000;
/** The min of a block is an F16. */
const largestOfMins = 60_000;

const limits: ReadonlyMap<number, number> = new Map([
  [f32, largestF32],
  [f16, largestF16],
  [bf16, largestBF16],
  [mxfp4, largestF32],
  [q4_1, largestOfMins],
  [q5_1, largestOfMins],
]);

/** Returns the largest magnitude of a value that may be encoded in a type. Its scales would not be finite beyond. */
export function largestValue(type: number): number {
  return limits.get(type) ?? largestOfBlocks;
}
