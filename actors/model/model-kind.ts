// Model kind: checks that a loaded model is of the configured `kind`. The check fails if the file was replaced or mixed up with
// another file.
import type { Capabilities, ModelSpec } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";

const expected = {
  text: "a model that generates text",
  multimodal: "a model that generates text and takes images or audio (mmproj)",
  embedding: "an encoder for embeddings",
} as const;

/** Checks that a model is of the kind in its spec. Throws config_invalid. */
export function checkKind({ kind, path, images, audio }: ModelSpec, { generates, pooling }: Capabilities): void {
  const generator = (images || audio) && kind === "multimodal" ? "multimodal" : "text";
  const found = generates ? generator : pooling === "rank" ? "reranker" : "embedding";
  if (!kind || kind === found) return;
  const got = found === "reranker" ? "a reranker" : expected[found];
  const message = `kind ${kind} expects ${expected[kind]}; got "${path}", ${got}: remove kind, or load another model`;
  throw new ServerError("config_invalid", message, { param: "kind" });
}
