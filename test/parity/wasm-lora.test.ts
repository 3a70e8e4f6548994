// LoRA adapters of the wasm engine beside the measure of them: the real model with the adapter merged into its float weights.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { Batch } from "../../engines/batch.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { prepareAdapter } from "../../engines/lora/prepare.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { floatModel, type LoraOptions, mergedModel, writePeftAdapter } from "../fixtures/lora.ts";
import { specOf } from "../fixtures/models.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-wasm-lora-"));
after(() => rmSync(folder, { recursive: true }));

const limits = { maxAdapters: 4, maxRank: 256, maxBytes: 2 ** 30 };
const text = Int32Array.from({ length: 24 }, (_, i) => 300 + ((i * i * 31 + i * 7) % 9000));
/** Tokens of the prompt; the rest is fed one by one. */
const prompt = 16;

/** Largest error as a share of the range of the logits that are right. */
const bound = 0.002;
/** What an adapter must change for the comparison to mean something. */
const leastChange = 0.05;

const cases: Readonly<Record<string, Omit<LoraOptions, "modelPath" | "seed">>> = {
  "attention, rank 16": { rank: 16 },
  "all linear, rank 16": { rank: 16, targets: "all-linear" },
  "one target, rank 3": { rank: 3, targets: ["v_proj"] },
  "one target, rank 64": { rank: 64, targets: ["down_proj"] },
};

/** The logits behind the prompt and behind every token after it. */
function generate(model: LoadedModel, adapter: number): Float32Array[] {
  const batch = new Batch(1, text.length);
  const feed = (from: number, to: number): Float32Array => {
    batch.clear();
    assert.ok(model.kv.reserve(0, to));
    batch.addRow(0, text, from, to, 1, adapter);
    return model.step(batch).logits.slice(0, model.card.vocabSize);
  };
  const logits = [feed(0, prompt)];
  for (let at = prompt; at < text.length; at++) logits.push(feed(at, at + 1));
  model.kv.release(0);
  return logits;
}

function largestShare(actual: readonly Float32Array[], expected: readonly Float32Array[]): number {
  const shares = expected.map((logits, step) => {
    const range = Math.max(...logits) - Math.min(...logits);
    return logits.reduce((worst, value, i) => Math.max(worst, Math.abs(value - actual[step]![i]!)), 0) / range;
  });
  return Math.max(...shares);
}

describe("adapters of the wasm engine beside merged weights", () => {
  for (const [name, options] of Object.entries(cases)) {
    it(`give the merged model's logits within ${bound * 100} % of their range: ${name}`, async () => {
      const modelPath = await floatModel();
      const source = join(folder, name.replaceAll(/\W+/g, "-"));
      await writePeftAdapter(source, { modelPath, seed: 3, ...options });
      const { path } = await prepareAdapter({ source, root: null, modelPath, limits, folder });
      const mergedPath = join(folder, "merged.gguf");
      await mergedModel(modelPath, source, mergedPath);
      const spec = specOf(modelPath, { maxModelLength: 128, kvType: "f32", maxSequences: 1 });
      const merged = await wasmEngine.load({ ...spec, path: mergedPath }, () => {});
      const expected = generate(merged, 0);
      merged.dispose();
      const model = await wasmEngine.load({ ...spec, adapters: limits }, () => {});
      try {
        await model.adapters?.load(1, path);
        assert.ok(largestShare(generate(model, 0), expected) > leastChange, "the adapter changes something");
        const error = largestShare(generate(model, 1), expected);
        assert.ok(error <= bound, String(error));
      } finally {
        model.dispose();
      }
    });
  }
});
