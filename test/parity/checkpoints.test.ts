// Checkpoints compared with the official classes: each tiny checkpoint is written by the official safetensors package,
// converted to GGUF files with F32 and F16 matrices, and run by the engines. The outputs are compared with those of
// transformers.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { Batch } from "../../engines/batch.ts";
import type { Engine } from "../../engines/engine.ts";
import { readSlice } from "../../engines/files/checkpoint/matformer/slice-file.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { architectures } from "../../engines/wasm/graph/architectures/registry.ts";
import {
  type CheckpointCase,
  checkpointCase,
  checkpointValues,
  sliceCases,
  writeAsGguf,
  writeCheckpoints,
  writeQuantised,
} from "../fixtures/checkpoints/checkpoint-model.ts";
import { specOf } from "../fixtures/models/models.ts";

/** Maximum error as a fraction of the range of the outputs. */
const largestError = 0.005;
const cases = readdirSync(fileURLToPath(new URL("../../../test/fixtures/checkpoints/cases/", import.meta.url)))
  .filter((name) => name.endsWith(".json"))
  .map((name) => name.slice(0, -".json".length));
/** Cases with a tensor that the wasm engine rejects. */
const onlyLlama = ["jina-bert-v2-code"];
const types = { F32: 0, F16: 1 } as const;
const storedTypes = ["F32", "F16"] as const;
/** Quantization methods of quantised.py. */
const methods = [
  ...["gptq", "gptq-8", "gptq-v2", "awq", "packed", "packed-zeros", "fp8-block", "fp8-tensor", "fp8-channel"],
  ...["bnb-8", "bnb-4", "bnb-4-nested", "mxfp4"],
];

describe("checkpoints in safetensors", () => {
  let directory = "";
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), "troupe-checkpoints-"));
    await writeCheckpoints(
      cases.flatMap((name) => storedTypes.map((type) => ({ folder: join(directory, `${name}-${type}`), name, type }))),
    );
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  for (const name of cases) {
    it(`give the outputs of transformers within 0.5 % of their range: ${name}`, async () => {
      const expected = checkpointCase(name);
      for (const stored of storedTypes) {
        const folder = join(directory, `${name}-${stored}`);
        for (const [type, number] of Object.entries(types)) {
          // Skips F16 checkpoints converted to F32: the weights have the same values as in the F16 run, which copies them.
          if (stored === "F16" && type === "F32") continue;
          const path = join(directory, `${name}-${stored}-${type}.gguf`);
          const { architecture } = await writeAsGguf(folder, path, number);
          const engines = isOnWasm(architecture, name) ? { llamaEngine, wasmEngine } : { llamaEngine };
          for (const [engine, loader] of Object.entries(engines)) {
            const error = await errorOf(loader, path, expected, stored === "F16" ? 2 : 1);
            assert.ok(error <= largestError, `${engine}, ${stored} as ${type}: ${error}`);
          }
          rmSync(path);
        }
      }
    });
  }
});

describe("slices of a MatFormer model", () => {
  it("give the outputs of transformers with a model that was cut by hand", async () => {
    const directory = mkdtempSync(join(tmpdir(), "troupe-slices-"));
    try {
      const { slices, ...common } = sliceCases();
      await writeCheckpoints([{ folder: join(directory, "whole"), name: "gemma3n", type: "F32" }]);
      writeFileSync(join(directory, "slices.json"), JSON.stringify(slices));
      const sizes: number[] = [];
      for (const { name, logits } of slices) {
        const path = join(directory, `${name}.gguf`);
        const slice = await readSlice(join(directory, "slices.json"), name);
        await writeAsGguf(join(directory, "whole"), path, 0, { slice });
        const error = await errorOf(llamaEngine, path, { ...common, config: {}, logits }, 1);
        assert.ok(error <= largestError, `${name}: ${error}`);
        sizes.push(statSync(path).size);
      }
      const [short, long, mixed] = sizes as [number, number, number];
      assert.ok(short < 0.8 * long && mixed === long, sizes.join());
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

describe("quantised checkpoints", () => {
  let directory = "";
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), "troupe-quantised-"));
    await writeQuantised(directory, methods);
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  for (const method of methods) {
    it(`have the values of the same model with plain weights: ${method}`, async () => {
      const expected = await checkpointValues(join(directory, method, "plain"));
      const actual = await checkpointValues(join(directory, method, "quantised"));
      assert.deepEqual([...actual.keys()].sort(), [...expected.keys()].sort());
      for (const [name, values] of expected) {
        const own = actual.get(name) as Float32Array;
        const wrong = values.findIndex(
          (value, i) => Math.abs(value - own[i]!) > 1e-6 * Math.max(1e-3, Math.abs(value)),
        );
        assert.equal(wrong, -1, `${name}, value ${wrong}: ${own[wrong]} instead of ${values[wrong]}`);
      }
    });
  }

  it("keep MXFP4, and give the outputs of plain weights", async () => {
    const { tensors } = await writeAsGguf(join(directory, "mxfp4", "quantised"), join(directory, "own.gguf"), 0);
    assert.equal(tensors.filter(({ storedType }) => storedType === 39).length, 12);
    await writeAsGguf(join(directory, "mxfp4", "plain"), join(directory, "plain.gguf"), 0);
    const { tokens } = checkpointCase("gpt-oss");
    const logits = await lastLogits(join(directory, "plain.gguf"), tokens);
    // llama.cpp rounds the inputs of an MXFP4 matrix to 8 bits.
    const error = errorShare(logits, Float32Array.from(await lastLogits(join(directory, "own.gguf"), tokens)));
    assert.ok(error <= 0.01, String(error));
  });
});

async function lastLogits(path: string, tokens: readonly number[]): Promise<number[]> {
  const model = await llamaEngine.load(specOf(path, { kvType: "f32", maxSequences: 1, threads: 1 }), () => {});
  try {
    assert.ok(model.kv.reserve(0, tokens.length));
    const batch = new Batch(1, model.capacity.maxBatchTokens);
    batch.addRow(0, Int32Array.from(tokens), 0, tokens.length, 1, 0);
    const { logits, logitsRow } = model.step(batch);
    const start = logitsRow[0]! * model.card.vocabSize;
    return [...logits.slice(start, start + model.card.vocabSize)];
  } finally {
    model.dispose();
  }
}

function isOnWasm(architecture: string, name: string): boolean {
  return !onlyLlama.includes(name) && architectures.some(({ name }) => name === architecture);
}

/** Returns the largest error of an engine's outputs, as a fraction of the range of the expected outputs. */
async function errorOf(engine: Engine, path: string, expected: CheckpointCase, threads: number): Promise<number> {
  const tokens = Int32Array.from(expected.tokens);
  const spec = { kvType: "f32", maxSequences: 1, threads, extraLogitsRows: tokens.length } as const;
  const model = await engine.load(specOf(path, spec), () => {});
  try {
    assert.ok(model.kv.reserve(0, tokens.length));
    const batch = new Batch(1, model.capacity.maxBatchTokens);
    const { embedding, scores, logits = [], kept = [], stride = 1 } = expected;
    const output = embedding ?? scores;
    if (output) {
      batch.wantPooled[batch.addRow(0, tokens, 0, tokens.length, 0, 0)] = 1;
      const { pooled, pooledRow } = model.step(batch);
      const { pooledLength } = model.capabilities;
      const own = pooled.slice(pooledRow[0]! * pooledLength, (pooledRow[0]! + 1) * pooledLength);
      // Engines may return the sum instead of the mean, because embeddings are normalised afterwards.
      const scale = embedding ? Math.hypot(...embedding) / Math.hypot(...own) : 1;
      return errorShare(
        output,
        own.map((value) => value * scale),
      );
    }
    batch.addRow(0, tokens, 0, tokens.length, tokens.length, 0);
    const step = model.step(batch);
    const { vocabSize } = model.card;
    const errors = kept.map((position, i) => {
      const start = (step.logitsRow[0]! + position) * vocabSize;
      const own = step.logits.slice(start, start + vocabSize).filter((_, at) => at % stride === 0);
      return errorShare(logits[i]!, own);
    });
    return Math.max(...errors);
  } finally {
    model.dispose();
  }
}

function errorShare(expected: readonly number[], actual: Float32Array): number {
  assert.equal(actual.length, expected.length);
  const range = Math.max(...expected) - Math.min(...expected);
  return expected.reduce((worst, value, i) => Math.max(worst, Math.abs(value - actual[i]!)), 0) / range;
}
