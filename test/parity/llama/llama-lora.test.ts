// LoRA adapters in the llama engine: the output equals that of a model with the adapter merged into its weights. An adapter
// changes neither the output of the base model nor that of other adapters.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { StepLoop } from "../../../actors/model/step/step-loop.ts";
import { Batch } from "../../../engines/batch.ts";
import type { StepTimeModel } from "../../../engines/decoding/scheduler/step-time-model.ts";
import { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import type { LoadedModel, ModelSpec } from "../../../engines/engine.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { shortModel } from "../../fixtures/gguf/quantize.ts";
import {
  afresh,
  error,
  feed,
  loadAdapted,
  peftAdapter,
  prepared,
  threeAdapters,
} from "../../fixtures/lora/llama-lora.ts";
import { mergedModel, writeGgufAdapter } from "../../fixtures/lora/lora.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyMtp } from "../../fixtures/models/tiny-mtp.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";
import { lookupOnly } from "../../fixtures/speculative-decoding.ts";
import { Frames, job } from "../../unit/actors/generation/rig.ts";

const directory = mkdtempSync(join(tmpdir(), "troupe-llama-lora-"));
after(() => rmSync(directory, { recursive: true, force: true }));

describe("an adapter in the llama engine", () => {
  for (const targets of ["attention", "all-linear"] as const) {
    it(`changes the default model like merging it into the weights: ${targets}`, async () => {
      const basePath = await shortModel("F32");
      const folder = await peftAdapter(directory, `real-${targets}`, {
        modelPath: basePath,
        seed: 3,
        rank: 16,
        targets,
      });
      const mergedPath = join(directory, `merged-${targets}.gguf`);
      await mergedModel(basePath, folder, mergedPath);
      const [base, merged] = [await loadAdapted(basePath), await loadAdapted(mergedPath)];
      const expected = afresh(merged, 0, 16);
      merged.dispose();
      rmSync(mergedPath);
      await base.adapters.load(1, await prepared(folder, basePath));
      const off = error(afresh(base, 1, 16), expected);
      const without = error(afresh(base, 0, 16), expected);
      base.dispose();
      assert.ok(off <= 0.01, `${off} of the logits' range`);
      assert.ok(without > 0.03, `the adapter changes ${without} of the logits' range alone`);
    });
  }

  it("works on a quantised model, whose weights llama.cpp keeps in its own order", async () => {
    const [basePath, path] = [await shortModel("F32"), await shortModel("Q4_0")];
    const folder = await peftAdapter(directory, "quantised", {
      modelPath: path,
      seed: 4,
      targets: "all-linear",
      magnitude: 2,
    });
    const file = await prepared(folder, path);
    const [base, quantised] = [await loadAdapted(basePath), await loadAdapted(path)];
    for (const model of [base, quantised]) await model.adapters.load(1, file);
    const expected = afresh(base, 1);
    const off = error(afresh(quantised, 1), expected);
    const without = error(afresh(quantised, 0), expected);
    for (const model of [base, quantised]) model.dispose();
    assert.ok(off < without / 2, `${off} of the logits' range with the adapter, ${without} without`);
  });
});

describe("adapters of a generated model in the llama engine", () => {
  const loadTiny = (changes: Partial<ModelSpec> = {}) => loadAdapted(path, { threads: 1, ...changes });
  let path = "";
  let files: string[] = [];
  before(async () => {
    path = await tinyModel();
    files = await threeAdapters(directory, path);
  });

  it("do not change the base model or each other, bit for bit, in whatever order they are used", async () => {
    const model = await loadTiny();
    const base = afresh(model, 0);
    const alone: Float32Array[] = [];
    for (const [i, file] of files.entries()) {
      await model.adapters.load(i + 1, file);
      alone.push(afresh(model, i + 1));
    }
    assert.ok(error(alone[0]!, base) > 0.05 && error(alone[0]!, alone[1]!) > 0.05);
    for (const id of [0, 3, 0, 1, 2, 2, 3, 1, 0]) assert.deepEqual(afresh(model, id), alone[id - 1] ?? base, `${id}`);
    model.dispose();
  });

  it("are used one per step: rows of several adapters and of unloaded ones are rejected", async () => {
    const model = await loadTiny();
    await model.adapters.load(1, files[1]!);
    const base = afresh(model, 0);
    const batch = new Batch(2, 8);
    for (const [slot, adapter] of [
      [0, 1],
      [1, 0],
    ] as const) {
      model.kv.reserve(slot, 4);
      batch.addRow(slot, Int32Array.of(5, 6, 7, 8), 0, 4, 1, adapter);
    }
    assert.throws(
      () => model.step(batch),
      (thrown: ServerError) => thrown.code === "model_failed",
    );
    assert.throws(
      () => afresh(model, 9),
      (thrown: ServerError) => thrown.code === "model_failed",
    );
    assert.deepEqual(afresh(model, 0), base);
    model.dispose();
  });

  for (const pagedKv of [true, false]) {
    it(`keep to their sequences, which are swapped out and back meanwhile: ${pagedKv ? "pool" : "streams"}`, async () => {
      const model = await loadTiny({ pagedKv });
      await model.adapters.load(1, files[1]!);
      await model.adapters.load(2, files[2]!);
      /** Feeds a sequence with adapter 1 in three steps. Calls `between` after the first and the second step. */
      const sequence = (between: (tokens: number) => void) => {
        for (const to of [16, 32]) {
          feed(model, { slot: 0, from: to - 16, to, adapter: 1 });
          between(to);
        }
        const logits = feed(model, { slot: 0, from: 32, to: 48, adapter: 1 });
        model.kv.release(0);
        return logits;
      };
      const expected = sequence(() => {});
      const swapped = sequence((tokens) => {
        const saved = model.kv.save(0);
        assert.ok(saved);
        model.kv.release(0);
        afresh(model, 2);
        model.kv.restore(0, saved, tokens);
        model.kv.drop(saved);
        afresh(model, 0);
      });
      assert.ok(error(swapped, expected) < 1e-4);
      model.dispose();
    });
  }
});

describe("an adapter of a model with prediction heads", () => {
  it("affects the model's output; drafts, which are made without it, change nothing", async () => {
    const path = join(directory, "heads.gguf");
    await writeTinyMtp(path, { seed: 5 });
    const adapter = join(directory, "heads-adapter.gguf");
    const targets = ["q_proj", "k_proj", "v_proj", "o_proj"];
    await writeGgufAdapter(adapter, { modelPath: path, seed: 6, targets, layers: [0, 1], magnitude: 2 });
    const model = await loadAdapted(path, { threads: 1, mtp: { path: null } });
    const base = await generated(model, 0, "", false);
    const plain = await generated(model, 1, adapter, false);
    assert.notDeepEqual(plain, base);
    assert.deepEqual(await generated(model, 2, adapter, true), plain);
    assert.deepEqual(await generated(model, 0, "", true), base);
    model.dispose();
  });
});

/** Runs the step loop for two prompts with an adapter (0 = none) that is loaded only for these prompts. Returns the generated tokens. */
async function generated(model: LoadedModel, adapter: number, path: string, isDrafting: boolean): Promise<number[][]> {
  // Simulated step times with which drafting always saves time.
  const cost = { decodeMs: (tokens: number) => 20 + 0.01 * tokens, mostDecodeTokens: 1000 } as StepTimeModel;
  const options = { ...lookupOnly, promptLookup: false, mtpTokens: 4 };
  const loop = new StepLoop(model, {
    limits: { ...generousLimits, maxBatchTokens: model.capacity.maxBatchTokens },
    frameIntervalMs: 0,
    createSpeculation: (_, choose) =>
      !isDrafting ? null : Speculation.create({ model, draft: null, options, cost, choose, now: () => 0 }),
  });
  if (adapter > 0) await loop.adapters.load({ id: adapter, generation: `${adapter}`, path });
  const frames = new Frames();
  const prompts = [0, 1].map((p) =>
    Int32Array.from({ length: 20 }, (_, i) => 3 + ((i * i * 7 + i * 31 + p * 11) % 300)),
  );
  for (const [id, prompt] of prompts.entries()) {
    loop.submit(frames, [job(id, { prompt, adapter, maxNewTokens: 40, ignoreEos: true })]);
  }
  while (loop.step());
  if (adapter > 0) await loop.adapters.unload(adapter);
  const { speculation } = loop.snapshot();
  assert.equal(speculation.proposed > 20, isDrafting);
  return prompts.map((_, id) => frames.rows.filter((row) => row.id === id).map(({ token }) => token));
}
