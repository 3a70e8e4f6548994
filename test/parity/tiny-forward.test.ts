// Plain forward pass (tiny-forward.ts), which other tests use as the reference for engines. Without adapters it is compared
// with the wasm engine; with a single adapter it is compared with merged weights.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Batch } from "../../engines/batch.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { mergedModel } from "../fixtures/lora/lora.ts";
import { temporaryFolder } from "../fixtures/lora/lora-prepared.ts";
import { writeXlora } from "../fixtures/lora/xlora.ts";
import { xloraReference } from "../fixtures/lora/xlora-reference.ts";
import { specOf } from "../fixtures/models/models.ts";
import { tinyForward } from "../fixtures/models/tiny-forward.ts";
import { writeTinyModel } from "../fixtures/models/tiny-gguf.ts";

const folder = temporaryFolder();
const modelPath = join(folder, "model.gguf");
await writeTinyModel(modelPath, { seed: 5, heads: 4, kvHeads: 2 });
const tokens = Int32Array.from({ length: 12 }, (_, i) => 3 + ((i * i * 31 + i * 7) % 500));

/** Returns the largest difference as a fraction of the range of the logits. */
function largestShare(actual: readonly Float32Array[], expected: readonly Float32Array[]): number {
  assert.equal(actual.length, expected.length);
  const shares = expected.map((logits, token) => {
    const range = Math.max(...logits) - Math.min(...logits);
    return logits.reduce((worst, value, i) => Math.max(worst, Math.abs(value - actual[token]![i]!)), 0) / range;
  });
  return Math.max(...shares);
}

async function engineLogits(): Promise<Float32Array[]> {
  const spec = { kvType: "f32", maxSequences: 1, threads: 1, extraLogitsRows: tokens.length } as const;
  const model = await wasmEngine.load(specOf(modelPath, spec), () => {});
  try {
    assert.ok(model.kv.reserve(0, tokens.length));
    const batch = new Batch(1, tokens.length);
    batch.addRow(0, tokens, 0, tokens.length, tokens.length, 0);
    const { logits } = model.step(batch);
    const { vocabSize } = model.card;
    return Array.from(tokens, (_, token) => logits.slice(token * vocabSize, (token + 1) * vocabSize));
  } finally {
    model.dispose();
  }
}

describe("the plain forward pass of tests", () => {
  it("gives the wasm engine's logits", async () => {
    const { logits } = (await tinyForward(modelPath)).run(tokens);
    const share = largestShare(await engineLogits(), logits);
    assert.ok(share < 1e-4, String(share));
  });

  it("gives, with one adapter of weight 1, the logits of the model that it is merged into", async () => {
    const written = await writeXlora(join(folder, "one"), { modelPath, seed: 3, adapters: 1, layerwise: true });
    const { logits } = await xloraReference(modelPath, written.folder, written.orderFile, tokens);
    const mergedPath = join(folder, "merged.gguf");
    await mergedModel(modelPath, join(written.folder, "adapter_1"), mergedPath);
    const merged = (await tinyForward(mergedPath)).run(tokens);
    const base = (await tinyForward(modelPath)).run(tokens);
    assert.ok(largestShare(logits, merged.logits) < 1e-5);
    assert.ok(largestShare(base.logits, merged.logits) > 0.05, "the adapter changes something");
  });

  it("weighs adapters by the layers and the order that the order file gives", async () => {
    const options = { modelPath, seed: 4, layerwise: true, depth: 3 } as const;
    const plain = await writeXlora(join(folder, "plain"), options);
    const layers = Object.fromEntries(plain.modules.map((module, i) => [module, plain.modules.length - 1 - i]));
    const turned = await writeXlora(join(folder, "turned"), { ...options, order: { layers } });
    const [first, other] = [
      await xloraReference(modelPath, plain.folder, plain.orderFile, tokens),
      await xloraReference(modelPath, turned.folder, turned.orderFile, tokens),
    ];
    assert.deepEqual(first.weights, other.weights, "the classifier is the same");
    assert.ok(largestShare(other.logits, first.logits) > 0.02);
    for (const weights of first.weights.flat()) {
      assert.equal(weights.length, 3);
      assert.ok(Math.abs(weights.reduce((one, two) => one + two) - 1) < 1e-9, "they are shares of 1");
    }
    assert.ok(
      new Set(first.weights.map((ofToken) => ofToken[0]?.[0])).size === tokens.length,
      "each token has its own",
    );
  });
});
