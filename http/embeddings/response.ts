// Body of an embeddings response, built in pieces because it may have tens of megabytes.
import type { Embeddings } from "../../actors/api/inference.ts";
import { gathered } from "../shared/answer/json-pieces.ts";
import { numberFragments, slices } from "../shared/answer/vector-json.ts";

/** Yields the response body as pieces of JSON text. */
export function embeddingList(model: string, embeddings: Embeddings, format: "float" | "base64"): Iterable<string> {
  return gathered(fragments(model, embeddings, format === "float" ? numberFragments : base64Fragments));
}

function* fragments(
  model: string,
  { vectors, promptTokens }: Embeddings,
  written: (vector: Float32Array) => Iterable<string>,
): Generator<string> {
  yield '{"object":"list","data":[';
  for (const [index, vector] of vectors.entries()) {
    yield `${index === 0 ? "" : ","}{"object":"embedding","index":${index},"embedding":`;
    yield* written(vector);
    yield "}";
  }
  const usage = JSON.stringify({ prompt_tokens: promptTokens, total_tokens: promptTokens });
  yield `],"model":${JSON.stringify(model)},"usage":${usage}}`;
}

/** Encodes a vector as base64 of little-endian floats. No conversion is needed: every supported machine is little-endian. */
function* base64Fragments(vector: Float32Array): Generator<string> {
  yield '"';
  for (const [, { buffer, byteOffset, byteLength }] of slices(vector)) {
    yield Buffer.from(buffer, byteOffset, byteLength).toString("base64");
  }
  yield '"';
}
