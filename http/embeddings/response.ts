// Owns the body of an embeddings answer. It may be tens of megabytes, so it is written in turns: this thread has others to
// answer meanwhile.
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Embeddings } from "../../actors/inference.ts";

/** Numbers written before others get their turn: about a millisecond's worth. */
const FLOATS_PER_TURN = 8192;

/** The body as JSON text. */
export async function embeddingList(
  model: string,
  { vectors, promptTokens }: Embeddings,
  format: "float" | "base64",
): Promise<string> {
  const data: string[] = [];
  let floats = 0;
  for (const [index, vector] of vectors.entries()) {
    floats += vector.length;
    if (floats > FLOATS_PER_TURN) {
      floats = 0;
      await nextTurn();
    }
    const embedding = format === "float" ? `[${vector.join(",")}]` : `"${base64(vector)}"`;
    data.push(`{"object":"embedding","index":${index},"embedding":${embedding}}`);
  }
  const usage = JSON.stringify({ prompt_tokens: promptTokens, total_tokens: promptTokens });
  return `{"object":"list","data":[${data.join(",")}],"model":${JSON.stringify(model)},"usage":${usage}}`;
}

/** Little-endian floats, as every machine this runs on has them. */
function base64(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString("base64");
}
