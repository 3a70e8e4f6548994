// Calibration in the llama engine: the collected matrix inputs equal those of a plain forward pass and those of the wasm engine.
// Also tests models with experts, and text input with a model that only llama.cpp supports.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import { collectFromText } from "../../../engines/calibration/collect-from-text.ts";
import type { Engine, InputSums, LoadedModel } from "../../../engines/engine.ts";
import { llamaEngine } from "../../../engines/llama/engine.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { writeAsGguf, writeCheckpoints } from "../../fixtures/checkpoints/checkpoint-model.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { tinyForward } from "../../fixtures/models/tiny-forward.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";

const tokens = Int32Array.from({ length: 100 }, (_, i) => (i * 37 + 5) % 200);

function feed(model: LoadedModel): void {
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  assert.ok(model.kv.reserve(0, tokens.length));
  batch.addRow(0, tokens, 0, tokens.length, 1, 0);
  model.step(batch);
  model.kv.release(0);
}

async function collected(engine: Engine, path: string): Promise<Map<string, InputSums>> {
  const spec = specOf(path, { threads: 1, kvType: "f32", maxSequences: 1, collectsInputs: true });
  const model = await engine.load(spec, () => {});
  try {
    const { calibration } = model;
    assert.ok(calibration);
    feed(model);
    assert.deepEqual([calibration.isCollecting, calibration.sums()], [false, []]);
    calibration.start();
    feed(model);
    const sums = calibration.sums();
    calibration.stop();
    feed(model);
    assert.deepEqual([calibration.isCollecting, calibration.sums()], [false, []]);
    return new Map(sums.map((one) => [one.name, one]));
  } finally {
    model.dispose();
  }
}

function assertNear(actual: ArrayLike<number>, expected: ArrayLike<number>, name: string): void {
  assert.equal(actual.length, expected.length, name);
  const largest = Math.max(...Array.from(expected));
  for (let i = 0; i < expected.length; i++) {
    const error = Math.abs(actual[i]! - expected[i]!) / largest;
    assert.ok(error < 2e-3, `${name}, column ${i}: ${actual[i]}, expected ${expected[i]}`);
  }
}

describe("the inputs that the llama engine collects", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-calibration-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  it("are those of every matrix of the layers", async () => {
    const path = join(folder, "tiny.gguf");
    await writeTinyModel(path, { seed: 3 });
    const expected = new Map<string, Float64Array>();
    (await tinyForward(path)).run(tokens, (matrix, input) => {
      const sums = expected.get(matrix) ?? new Float64Array(input.length);
      expected.set(matrix, sums);
      for (const [i, value] of input.entries()) sums[i] = (sums[i] as number) + value * value;
      return null;
    });
    const sums = await collected(llamaEngine, path);
    const layers = [...expected.keys()].filter((name) => name.startsWith("blk."));
    assert.deepEqual([...sums.keys()].sort(), layers.sort());
    // In its last layer, llama.cpp computes the feed-forward only for tokens whose output is requested: here the last token.
    for (const name of layers) {
      const { rows, squares } = sums.get(name)!;
      if (rows[0] === tokens.length) assertNear(squares, expected.get(name)!, name);
      else assert.match(name, /^blk\.1\.(?:ffn_|attn_output)/);
    }
  });

  it("are counted for each expert, as by the wasm engine", async () => {
    const path = join(folder, "experts.gguf");
    await writeTinyArchitecture(path, "mixtral", { seed: 1 });
    const [own, other] = [await collected(llamaEngine, path), await collected(wasmEngine, path)];
    const experts = [...own.keys()].filter((name) => name.startsWith("blk.0.") && name.includes("_exps"));
    assert.equal(experts.length, 3);
    for (const name of experts) {
      assert.deepEqual(own.get(name)?.rows, other.get(name)?.rows, name);
      assertNear(own.get(name)!.squares, other.get(name)!.squares, name);
    }
  });

  it("are collected from a text with a model that the wasm engine cannot run", async () => {
    const path = join(folder, "gemma3n.gguf");
    await writeCheckpoints([{ folder: join(folder, "gemma3n"), name: "gemma3n", type: "F32" }]);
    await writeAsGguf(join(folder, "gemma3n"), path, 0);
    const text = "A text of a few words. ".repeat(4);
    const { sums, chunks } = await collectFromText(path, { text, threads: 1, onProgress: () => {} });
    assert.ok(chunks >= 1);
    const names = new Map(sums.map(({ name, rows }) => [name, rows[0]]));
    assert.ok((names.get("blk.0.ffn_down.weight") ?? 0) > 1);
    assert.equal(names.get("blk.21.ffn_down.weight"), names.get("blk.0.ffn_down.weight"));
    assert.ok(sums.every(({ squares }) => squares.every(Number.isFinite)));
  });
});
