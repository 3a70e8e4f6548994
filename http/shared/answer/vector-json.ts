// Vectors as JSON, in pieces because a response with vectors may be tens of megabytes long.

/** Number of floats per piece. It is a multiple of 3, so that base64 needs no padding between pieces. */
const FLOATS_AT_ONCE = 3 * 1024;

/** Yields a vector as a JSON array. */
export function* numberFragments(vector: Float32Array): Generator<string> {
  yield "[";
  for (const [i, some] of slices(vector)) yield i === 0 ? some.join(",") : `,${some.join(",")}`;
  yield "]";
}

/** Yields the slices of a vector, each with its slice number (0, 1, …). A slice is serialised as one piece. */
export function* slices(vector: Float32Array): Generator<readonly [index: number, some: Float32Array]> {
  for (let at = 0; at < vector.length; at += FLOATS_AT_ONCE) {
    yield [at / FLOATS_AT_ONCE, vector.subarray(at, at + FLOATS_AT_ONCE)];
  }
}
