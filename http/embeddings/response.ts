// Body of an embeddings response, built in pieces because it may be tens of megabytes long.
import type { Embeddings } from "../../actors/api/inference.ts";
import { gathered } from "../shared/answer/json-pieces.ts";
import { numberFragments, slices } from "../shared/answer/vector-json.ts";

/** Yields the response body as pieces of JSON text. */
export function embeddingList(model: string, embeddings: Embeddings, format: "float" | "base64"): Iterable<string> {
  return gathered(fragments(model, embeddings, format === "float" ? arrayFragments : base64Fragments));
}

function* fragments(
  model: string,
  { vectors, promptTokens, tokenVectorLength: length }: Embeddings,
  written: (vector: Float32Array, rowLength?: number) => Iterable<string>,
): Generator<string> {
  yield '{"object":"list","data":[';
  for (const [index, vector] of vectors.entries()) {
    yield `${index === 0 ? "" : ","}{"object":"embedding","index":${index},"embedding":`;
    yield* written(vector, length);
    yield length === undefined ? "}" : `,"shape":[${vector.length / length},${length}]}`;
  }
  const usage = JSON.stringify({ prompt_tokens: promptTokens, total_tokens: promptTokens });
  yield `],"model":${JSON.stringify(model)},"usage":${usage}}`;
}

/** Yields a vector as an array, or several vectors of `rowLength` as an array of arrays. */
function* arrayFragments(vector: Float32Array, rowLength?: number): Generator<string> {
  if (rowLength === undefined) return yield* numberFragments(vector);
  for (let at = 0; at < vector.length; at += rowLength) {
    yield at === 0 ? "[" : ",";
    yield* numberFragments(vector.subarray(at, at + rowLength));
  }
  yield "]";
}

/** Encodes a vector as base64 of little-endian floats. No conversion is needed: every supported machine is little-endian. */
function* base64Fragments(vector: Float32Array): Generator<string> {
  yield '"';
  for (const [, { buffer, byteOffset, byteLength }] of slices(vector)) {
    yield Buffer.from(buffer, byteOffset, byteLength).toString("base64");
  }
  yield '"';
}
