// X-LoRA in the wasm engine compared with a reference: the real model with the adapters merged into its float weights, each
// multiplied by the weight that a constant classifier gives it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel, MixtureSpec } from "../../../engines/engine.ts";
import { prepareMixture } from "../../../engines/files/lora/mixture/mixture.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { shortModel } from "../../fixtures/gguf/quantize.ts";
import { mergedModel } from "../../fixtures/lora/lora.ts";
import { temporaryFolder } from "../../fixtures/lora/lora-prepared.ts";
import { writeXlora } from "../../fixtures/lora/xlora.ts";
import { specOf } from "../../fixtures/models/models.ts";

const folder = temporaryFolder();
const limits = { maxAdapters: 4, maxRank: 256, maxBytes: 2 ** 30 };
const text = Int32Array.from({ length: 20 }, (_, i) => 300 + ((i * i * 31 + i * 7) % 9000));
/** Number of prompt tokens. The other tokens are fed one by one. */
const prompt = 14;
/** Final weight of each adapter. */
const weights = [0.75, 0.25, -0.5];
const globalWeight = 0.5;

/** Maximum error as a fraction of the range of the reference logits. */
const bound = 0.002;
/** Minimum change of the logits by the adapters. A smaller change would make the comparison meaningless. */
const leastChange = 0.05;

/** Returns the logits after the prompt and after every later token. */
function generate(model: LoadedModel): Float32Array[] {
  const batch = new Batch(1, text.length);
  const feed = (from: number, to: number): Float32Array => {
    batch.clear();
    assert.ok(model.kv.reserve(0, to));
    batch.addRow(0, text, from, to, 1, 0);
    return model.step(batch).logits.slice(0, model.card.vocabSize);
  };
  const logits = [feed(0, prompt)];
  for (let at = prompt; at < text.length; at++) logits.push(feed(at, at + 1));
  model.dispose();
  return logits;
}

function largestShare(actual: readonly Float32Array[], expected: readonly Float32Array[]): number {
  const shares = expected.map((logits, step) => {
    const range = Math.max(...logits) - Math.min(...logits);
    return logits.reduce((worst, value, i) => Math.max(worst, Math.abs(value - actual[step]![i]!)), 0) / range;
  });
  return Math.max(...shares);
}

/** Returns the X-LoRA mixture with its classifier replaced by a constant one, which gives the same output for every token and layer. */
function constant(spec: MixtureSpec): MixtureSpec {
  const classifier = spec.classifier.map((layer) => ({
    ...layer,
    weight: new Float32Array(layer.weight.length),
    bias: Float32Array.from({ length: layer.rows }, (_, i) => weights[i % weights.length]! / globalWeight),
  }));
  return { ...spec, classifier, temperature: null, globalWeight };
}

describe("an X-LoRA of the wasm engine against merged weights", () => {
  it(`gives the merged model's logits within ${bound * 100} % of their range if its weights are constant`, async () => {
    const modelPath = await shortModel("F32");
    const adapterOptions = () => ({ rank: 16, magnitude: 0.3 });
    const written = await writeXlora(join(folder, "x"), { modelPath, seed: 3, layerwise: true, adapterOptions });
    const { folder: source, orderFile, adapters } = written;
    const spec = await prepareMixture({ source, orderFile, modelPath, limits, folder, keptAfter: null });
    const mergedPath = join(folder, "merged.gguf");
    const parts = adapters.map((name, i) => ({ folder: join(source, name), weight: weights[i]! }));
    await mergedModel(modelPath, parts, mergedPath);
    const sizes = { maxModelLength: 128, kvType: "f32", maxSequences: 1 } as const;
    const logitsOf = async (path: string, mixture: MixtureSpec | null) =>
      generate(await wasmEngine.load(specOf(path, { ...sizes, mixture }), () => {}));
    const expected = await logitsOf(mergedPath, null);
    assert.ok(largestShare(await logitsOf(modelPath, null), expected) > leastChange, "the adapters change something");
    const error = largestShare(await logitsOf(modelPath, constant(spec)), expected);
    assert.ok(error <= bound, String(error));
  });
});
