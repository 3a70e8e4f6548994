// Padded model compared with its original, both with float weights. They must compute the same function, because the tests of
// some quantized types use copies of the padded model instead of the original.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Engine } from "../../engines/engine.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { errorShare, type Feed, feedForAll } from "../fixtures/feeding.ts";
import { paddedShortModel, shortModel } from "../fixtures/gguf/quantize.ts";
import { specOf } from "../fixtures/models/models.ts";

const prompt: readonly (readonly Feed[])[] = [[{ slot: 0, from: 0, to: 16 }]];
const singly = Array.from({ length: 16 }, (_, i): Feed[] => [{ slot: 0, from: i, to: i + 1 }]);

async function logitsOf(engine: Engine, path: string, steps: readonly (readonly Feed[])[]): Promise<Float32Array[]> {
  const sizes = { maxSequences: 1, maxBatchTokens: 32, maxModelLength: 256 };
  const model = await engine.load(specOf(path, { ...sizes, kvType: "f32", threads: 1 }), () => {});
  const logits = steps.flatMap((rows) => feedForAll(model, rows).flat());
  model.dispose();
  return logits;
}

function largestError(expected: readonly Float32Array[], actual: readonly Float32Array[]): number {
  assert.equal(actual.length, expected.length);
  return Math.max(...expected.map((logits, position) => errorShare(logits, actual[position]!)));
}

describe("the padded model", () => {
  it("gives the outputs of the model that it was made from, apart from rounding of sums", async () => {
    const [model, padded] = await Promise.all([shortModel("F32"), paddedShortModel()]);
    const error = largestError(await logitsOf(wasmEngine, model, prompt), await logitsOf(wasmEngine, padded, prompt));
    assert.ok(error <= 1e-5, `${error} of the range of the logits`);
  });

  it("differs from that model in llama.cpp no more than that model differs between splits of the prompt", async () => {
    const [model, padded] = await Promise.all([shortModel("F32"), paddedShortModel()]);
    const expected = await logitsOf(llamaEngine, model, prompt);
    const noise = largestError(expected, await logitsOf(llamaEngine, model, singly));
    const error = largestError(expected, await logitsOf(llamaEngine, padded, prompt));
    assert.ok(noise < 1e-3 && error <= 2 * noise, `${error} of the range of the logits, where ${noise} is noise`);
  });
});
