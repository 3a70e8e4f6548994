// Other model sources: a GGML file, and a GGUF file with another architecture, give the same outputs as the GGUF file with the same
// weights.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { Batch } from "../../engines/batch.ts";
import type { Engine } from "../../engines/engine.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { convert } from "../../engines/quantization/conversion/conversion.ts";
import { type ModelOptions, planModel } from "../../engines/quantization/conversion/plan-model.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { ggmlBytes, ggmlOf } from "../fixtures/gguf/ggml-file.ts";
import { specOf } from "../fixtures/models/models.ts";
import { writeTinyModel } from "../fixtures/models/tiny-gguf.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-sources-"));
const nothing: ModelOptions = {
  ...{ level: null, organization: "default", topology: [], floatType: null, importance: null },
  ...{ overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
};
const tokens = Int32Array.from({ length: 20 }, (_, i) => (i * 37 + 11) % 256);

async function converted(path: string, target: string, options: Partial<ModelOptions>): Promise<boolean> {
  const { conversion, isSame } = await planModel(path, { ...nothing, ...options }, () => {});
  await convert(conversion, { target, threads: 1 });
  return isSame;
}

async function logitsOf(engine: Engine, path: string): Promise<Float32Array> {
  const spec = { kvType: "f32", maxSequences: 1, threads: 1 } as const;
  const model = await engine.load(specOf(path, spec), () => {});
  try {
    assert.ok(model.kv.reserve(0, tokens.length));
    const batch = new Batch(1, model.capacity.maxBatchTokens);
    batch.addRow(0, tokens, 0, tokens.length, 1, 0);
    const { logits, logitsRow } = model.step(batch);
    const start = logitsRow[0]! * model.card.vocabSize;
    return logits.slice(start, start + model.card.vocabSize);
  } finally {
    model.dispose();
  }
}

describe("a model from another source", () => {
  after(() => rmSync(folder, { recursive: true }));

  for (const type of ["Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "F16"] as const) {
    it(`has the outputs of the GGUF file: GGML with ${type}`, async () => {
      const [floats, gguf, ggml, target] = ["floats.gguf", "own.gguf", "old.bin", "new.gguf"].map((name) =>
        join(folder, name),
      );
      await writeTinyModel(floats!, {
        seed: 3,
        width: 256,
        heads: 4,
        kvHeads: 2,
        weights: type === "F16" ? "F16" : "F32",
      });
      const source = type === "F16" ? floats! : gguf!;
      if (type !== "F16") await converted(floats!, gguf!, { level: parseLevel(type, "isq") });
      writeFileSync(ggml!, ggmlBytes(await ggmlOf(source)));
      assert.equal(await converted(ggml!, target!, { queryHeads: 2 }), false);
      for (const engine of [llamaEngine, wasmEngine]) {
        assert.deepEqual(await logitsOf(engine, target!), await logitsOf(engine, source));
      }
    });
  }

  it("has the outputs of the specified architecture: a GGUF file that names llama", async () => {
    const [source, target] = ["seed.gguf", "renamed.gguf"].map((name) => join(folder, name));
    await writeTinyModel(source!, { seed: 4 });
    assert.equal(await converted(source!, target!, { architecture: "Llama" }), true);
    assert.equal(await converted(source!, target!, { architecture: "SmolLM3ForCausalLM" }), false);
    // SmolLM3 uses no RoPE in every fourth layer, so its first two layers equal Llama's.
    assert.deepEqual(await logitsOf(llamaEngine, target!), await logitsOf(llamaEngine, source!));
  });
});
