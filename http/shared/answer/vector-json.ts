// Vectors as JSON, in pieces because they may have tens of megabytes.

/** Floats serialised per piece. The number is a multiple of 3, so base64 needs no padding between pieces. */
const FLOATS_AT_ONCE = 3 * 1024;

/** Yields a vector as a JSON array. */
export function* numberFragments(vector: Float32Array): Generator<string> {
  yield "[";
  for (const [i, some] of slices(vector)) yield i === 0 ? some.join(",") : `,${some.join(",")}`;
  yield "]";
}

/** Yields the parts of a vector that are serialised at once, each with its index. */
export function* slices(vector: Float32Array): Generator<readonly [index: number, some: Float32Array]> {
  for (let at = 0; at < vector.length; at += FLOATS_AT_ONCE) {
    yield [at / FLOATS_AT_ONCE, vector.subarray(at, at + FLOATS_AT_ONCE)];
  }
}
