// checkKind: rejects a loaded model whose kind differs from the kind that the settings require.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkKind } from "../../../../actors/model/model-kind.ts";
import type { Capabilities, ModelSpec } from "../../../../engines/engine.ts";

const decoder = { generates: true, pooling: "last" };
const encoder = { generates: false, pooling: "mean" };
const reranker = { generates: false, pooling: "rank" };

function check(kind: ModelSpec["kind"], capabilities: object): void {
  checkKind({ kind, path: "m.gguf" } as ModelSpec, capabilities as Capabilities);
}

describe("the kind of a model", () => {
  it("is not checked by default", () => {
    for (const model of [decoder, encoder, reranker]) {
      check(null, model);
      check(undefined, model);
    }
  });

  it("is accepted if the settings require it", () => {
    check("text", decoder);
    check("embedding", encoder);
  });

  it("is refused if the settings require another one, naming what was found", () => {
    const refusals: [NonNullable<ModelSpec["kind"]>, object, RegExp][] = [
      [
        "text",
        encoder,
        /^kind text expects a model that generates text; got "m\.gguf", an encoder for embeddings: remove/,
      ],
      ["text", reranker, /^kind text expects a model that generates text; got "m\.gguf", a reranker: remove/],
      [
        "embedding",
        decoder,
        /^kind embedding expects an encoder for embeddings; got "m\.gguf", a model that generates/,
      ],
      ["embedding", reranker, /^kind embedding expects an encoder for embeddings; got "m\.gguf", a reranker: remove/],
    ];
    for (const [kind, model, message] of refusals) {
      assert.throws(() => check(kind, model), { code: "config_invalid", message });
    }
  });
});
