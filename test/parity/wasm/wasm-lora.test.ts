// LoRA adapters of the wasm engine compared with a reference: a model with the adapter merged into its float weights. Uses the
// real model and generated ones of other architectures.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { prepareAdapter } from "../../../engines/files/lora/prepare.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { shortModel } from "../../fixtures/gguf/quantize.ts";
import { type LoraOptions, mergedModel, writeGgufAdapter, writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { type TinyArchitecture, writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-wasm-lora-"));
after(() => rmSync(folder, { recursive: true }));

type Targets = NonNullable<LoraOptions["targets"]>;

const limits = { maxAdapters: 4, maxRank: 256, maxBytes: 2 ** 30 };
const text = Int32Array.from({ length: 24 }, (_, i) => 300 + ((i * i * 31 + i * 7) % 9000));
/** Number of prompt tokens. The other tokens are fed one by one. */
const prompt = 16;

/** Maximum error as a fraction of the range of the reference logits. */
const bound = 0.002;
/** Minimum change of the logits by the adapter. A smaller change would make the comparison meaningless. */
const leastChange = 0.05;

const cases: Readonly<Record<string, Omit<LoraOptions, "modelPath" | "seed">>> = {
  "attention, rank 16": { rank: 16 },
  "all linear, rank 16": { rank: 16, targets: "all-linear" },
  "one target, rank 3": { rank: 3, targets: ["v_proj"], magnitude: 1 },
  "one target, rank 64": { rank: 64, targets: ["down_proj"], magnitude: 1 },
};

/** Returns the logits after the prompt and after every later token. */
function generate(model: LoadedModel, adapter: number): Float32Array[] {
  const { vocabSize } = model.card;
  const tokens = text.map((token) => token % vocabSize);
  const batch = new Batch(1, text.length);
  const feed = (from: number, to: number): Float32Array => {
    batch.clear();
    assert.ok(model.kv.reserve(0, to));
    batch.addRow(0, tokens, from, to, 1, adapter);
    return model.step(batch).logits.slice(0, vocabSize);
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

/** Compares the model with a loaded adapter to the model with the adapter merged into its weights. */
async function compare(name: string, options: LoraOptions): Promise<void> {
  const { modelPath } = options;
  const source = join(folder, name.replaceAll(/\W+/g, "-"));
  await writePeftAdapter(source, options);
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
}

describe("adapters of the wasm engine against merged weights", () => {
  for (const [name, options] of Object.entries(cases)) {
    it(`give the merged model's logits within ${bound * 100} % of their range: ${name}`, async () => {
      await compare(name, { modelPath: await shortModel("F32"), seed: 3, ...options });
    });
  }

  const whole = ["qwen2", "qwen3", "gemma", "gemma2", "gemma3", "granite", "olmo2", "stablelm"] as const;
  const architectures: Partial<Record<TinyArchitecture, Targets>> = {
    ...Object.fromEntries(whole.map((name) => [name, "all-linear"])),
    "stablelm, blocks side by side": "all-linear",
    phi3: ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    mixtral: "attention",
    qwen3moe: "attention",
  };
  for (const [name, targets] of Object.entries(architectures)) {
    it(`give the merged model's logits with another architecture: ${name}`, async () => {
      const modelPath = join(folder, "architecture.gguf");
      await writeTinyArchitecture(modelPath, name as TinyArchitecture, { seed: 5, weights: "F32" });
      await compare(name, { modelPath, seed: 3, rank: 4, targets });
    });
  }
});

describe("an adapter of a matrix to which the wasm engine applies none", () => {
  const cases = [["qwen3moe", "gate", "blk.1.ffn_gate_inp.weight"]] as const;
  for (const [architecture, target, tensor] of cases) {
    it(`is rejected with the tensor's name, and changes nothing: ${architecture}, ${target}`, async () => {
      const modelPath = join(folder, "refusing.gguf");
      await writeTinyArchitecture(modelPath, architecture, { seed: 5, weights: "F32" });
      const prepare = async (targets: Targets) => {
        const source = join(folder, "refused.gguf");
        await writeGgufAdapter(source, { modelPath, seed: 3, targets, layers: [1] });
        return (await prepareAdapter({ source, root: null, modelPath, limits, folder })).path;
      };
      const spec = specOf(modelPath, { maxModelLength: 128, maxSequences: 1, adapters: limits });
      const model = await wasmEngine.load(spec, () => {});
      try {
        const before = generate(model, 0);
        const refused = { code: "invalid_lora_adapter", message: new RegExp(`changes "${tensor}"; .*--engine llama`) };
        await assert.rejects(model.adapters!.load(1, await prepare(["o_proj", target])), refused);
        assert.throws(() => generate(model, 1), { code: "model_failed", message: /adapter 1 is not loaded/ });
        assert.deepEqual(generate(model, 0), before);
        await model.adapters!.load(2, await prepare(["o_proj"]));
        assert.ok(largestShare(generate(model, 2), before) > 0);
      } finally {
        model.dispose();
      }
    });
  }
});
