// LoRA adapters in the llama engine: what they make of a model is what merging them into its weights makes, and nothing else
// changes, whatever is loaded, freed or fails meanwhile.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { StepLoop } from "../../actors/scheduler/step-loop.ts";
import { Batch } from "../../engines/batch.ts";
import type { AdapterHost, AdapterLimits, LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { prepareAdapter } from "../../engines/lora/prepare.ts";
import type { StepCost } from "../../engines/scheduler/step-cost.ts";
import { Speculation } from "../../engines/speculation/speculation.ts";
import type { ServerError } from "../../runtime/errors.ts";
import { floatModel, type LoraOptions, mergedModel, writeGgufAdapter, writePeftAdapter } from "../fixtures/lora.ts";
import { specOf, tinyModel } from "../fixtures/models.ts";
import { quantizedModel } from "../fixtures/quantize.ts";
import { generousLimits } from "../fixtures/scheduling.ts";
import { lookupOnly } from "../fixtures/speculative-decoding.ts";
import { writeTinyModel } from "../fixtures/tiny-gguf.ts";
import { writeTinyMtp } from "../fixtures/tiny-mtp.ts";
import { Frames, job } from "../unit/actors/rig.ts";

const directory = mkdtempSync(join(tmpdir(), "troupe-llama-lora-"));
after(() => rmSync(directory, { recursive: true, force: true }));

const adapters: AdapterLimits = { maxAdapters: 16, maxRank: 256, maxBytes: 2 ** 30 };
const promptTokens = 48;

type AdaptedModel = LoadedModel & { readonly adapters: AdapterHost };

async function load(path: string, changes: Partial<ModelSpec> = {}): Promise<AdaptedModel> {
  const model = await llamaEngine.load(specOf(path, { adapters, ...changes }), () => {});
  assert.ok("adapters" in model && model.adapters);
  assert.equal(model.capabilities.adaptersPerStep, 1);
  return model as AdaptedModel;
}

/** A random adapter as PEFT writes it. */
async function peftAdapter(name: string, options: LoraOptions): Promise<string> {
  const folder = join(directory, name);
  await writePeftAdapter(folder, options);
  return folder;
}

/** The file that engines load. */
async function prepared(source: string, modelPath: string): Promise<string> {
  return (await prepareAdapter({ source, root: null, modelPath, limits: adapters, folder: directory })).path;
}

interface Feed {
  readonly slot?: number;
  readonly from?: number;
  readonly to?: number;
  readonly adapter: number;
  /** Of the last tokens; 1. */
  readonly logits?: number;
}

/** Feeds tokens of one text to a slot, and gives a copy of the logits asked for. */
function feed(model: LoadedModel, { slot = 0, from = 0, to = promptTokens, adapter, logits = 1 }: Feed): Float32Array {
  const { vocabSize } = model.card;
  const tokens = Int32Array.from({ length: to }, (_, i) => 3 + ((i * i * 7 + i * 31) % 300));
  const batch = new Batch(1, to);
  assert.ok(model.kv.reserve(slot, to));
  const row = batch.addRow(slot, tokens, from, to, logits, adapter);
  const output = model.step(batch);
  const at = output.logitsRow[row]! * vocabSize;
  return output.logits.slice(at, at + logits * vocabSize);
}

/** The same in a slot that is empty before and after. */
function afresh(model: LoadedModel, adapter: number, logits = 1): Float32Array {
  const values = feed(model, { slot: 3, adapter, logits });
  model.kv.release(3);
  return values;
}

/** The greatest difference, as a share of the range of the values. */
function error(values: Float32Array, expected: Float32Array): number {
  let [low, high, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0];
  expected.forEach((value, i) => {
    low = Math.min(low, value);
    high = Math.max(high, value);
    most = Math.max(most, Math.abs(value - values[i]!));
  });
  return most / (high - low);
}

describe("an adapter in the llama engine", () => {
  for (const targets of ["attention", "all-linear"] as const) {
    it(`does to the default model what merging it into the weights does: ${targets}`, async () => {
      const basePath = await floatModel();
      const folder = await peftAdapter(`real-${targets}`, { modelPath: basePath, seed: 3, rank: 16, targets });
      const mergedPath = join(directory, `merged-${targets}.gguf`);
      await mergedModel(basePath, folder, mergedPath);
      const [base, merged] = [await load(basePath), await load(mergedPath)];
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

  it("works on a quantised model, whose weights llama.cpp keeps in an order of its own", async () => {
    const [basePath, path] = [await floatModel(), await quantizedModel("Q4_0")];
    const folder = await peftAdapter("quantised", { modelPath: path, seed: 4, targets: "all-linear", magnitude: 2 });
    const file = await prepared(folder, path);
    const [base, quantised] = [await load(basePath), await load(path)];
    for (const model of [base, quantised]) await model.adapters.load(1, file);
    const expected = afresh(base, 1);
    const off = error(afresh(quantised, 1), expected);
    const without = error(afresh(quantised, 0), expected);
    for (const model of [base, quantised]) model.dispose();
    assert.ok(off < without / 2, `${off} of the logits' range with the adapter, ${without} without`);
  });
});

describe("adapters of a generated model in the llama engine", () => {
  const loadTiny = (changes: Partial<ModelSpec> = {}) => load(path, { threads: 1, ...changes });
  let path = "";
  const files: string[] = [];
  before(async () => {
    path = await tinyModel();
    for (let seed = 0; seed < 3; seed++) {
      const folder = await peftAdapter(`tiny-${seed}`, { modelPath: path, seed, rank: 256, targets: "all-linear" });
      files.push(await prepared(folder, path));
    }
  });

  it("leave the base model and each other as they were, to the bit, in whatever order they are used", async () => {
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

  it("are freed while in use by the last step, and those that take their place are others", async () => {
    const model = await loadTiny();
    const base = afresh(model, 0);
    const expected: Float32Array[] = [];
    for (let id = 1; id <= 12; id++) {
      await model.adapters.load(id, files[id % 3]!);
      const values = afresh(model, id);
      expected[id % 3] ??= values;
      assert.deepEqual(values, expected[id % 3], `adapter ${id}`);
      model.adapters.unload(id);
      if (id % 2 === 0) assert.deepEqual(afresh(model, 0), base);
      assert.throws(
        () => afresh(model, id),
        (thrown: ServerError) => thrown.code === "model_failed",
      );
    }
    model.dispose();
  });

  it("are loaded and freed while steps go on, which change adapters", async () => {
    const model = await loadTiny();
    await model.adapters.load(1, files[1]!);
    const expected = [afresh(model, 0), afresh(model, 1)];
    let isLoading = true;
    let steps = 0;
    const loads = (async () => {
      for (let id = 2; id < 60 || steps < 40; id++) {
        const load = model.adapters.load(id, files[id % 3]!);
        if (id > 2 && id % 2 === 1) model.adapters.unload(id - 1);
        await load;
        if (id % 2 === 1) model.adapters.unload(id);
      }
    })().finally(() => {
      isLoading = false;
    });
    for (; isLoading; steps++) {
      assert.deepEqual(afresh(model, steps % 2), expected[steps % 2]);
      await turn();
    }
    await loads;
    model.dispose();
  });

  it("are as they were when one cannot be loaded, and the error says why", async () => {
    const model = await loadTiny();
    await model.adapters.load(1, files[1]!);
    const expected = [afresh(model, 0), afresh(model, 1)];
    const truncated = join(directory, "truncated.gguf");
    writeFileSync(truncated, readFileSync(files[2]!).subarray(0, -1000));
    const foreign = join(directory, "foreign.gguf");
    const narrow = join(directory, "narrow.gguf");
    await writeTinyModel(narrow, { seed: 1, width: 32 });
    await writeGgufAdapter(foreign, { modelPath: narrow, seed: 1 });
    const refusals: [string, RegExp][] = [
      [join(directory, "missing.gguf"), /missing\.gguf': No such file/],
      [directory, /failed/],
      [path, /expect general\.type to be 'adapter'/],
      [truncated, /corrupted or incomplete/],
      [foreign, /incorrect shape/],
    ];
    for (const [i, [file, message]] of refusals.entries()) {
      await assert.rejects(model.adapters.load(2 + i, file), (thrown: ServerError) => {
        assert.equal(thrown.code, "lora_device_load_failed");
        assert.match(thrown.message, message);
        return true;
      });
      assert.throws(
        () => afresh(model, 2 + i),
        (thrown: ServerError) => thrown.code === "model_failed",
      );
      assert.deepEqual([afresh(model, 0), afresh(model, 1)], expected);
    }
    await model.adapters.load(2, files[2]!);
    assert.ok(error(afresh(model, 2), expected[0]!) > 0.05);
    model.dispose();
  });

  it("take no more memory the hundredth time than the first", async () => {
    const model = await loadTiny();
    const once = async (id: number) => {
      await model.adapters.load(id, files[id % 3]!);
      afresh(model, id);
      model.adapters.unload(id);
    };
    for (let id = 1; id <= 60; id++) await once(id);
    const before = process.memoryUsage.rss();
    for (let id = 61; id <= 160; id++) await once(id);
    const grown = process.memoryUsage.rss() - before;
    const bytes = readFileSync(files[0]!).length;
    assert.ok(grown < (100 * bytes) / 4, `${grown} bytes more after 100 loads of ${bytes}`);
    model.dispose();
  });

  it("go with their model, which may end while one is being loaded", async () => {
    for (let round = 0; round < 5; round++) {
      const model = await loadTiny();
      await model.adapters.load(1, files[1]!);
      afresh(model, 1);
      const settled = Promise.allSettled([2, 3, 4].map((id) => model.adapters.load(id, files[id % 3]!)));
      for (let i = 0; i < round; i++) await turn();
      model.dispose();
      for (const result of await settled) {
        assert.ok(result.status === "fulfilled" || result.reason.code === "lora_device_load_failed");
      }
    }
  });

  it("are one a step: rows of several are refused, and so are those of an adapter nobody loaded", async () => {
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
      /** A sequence of adapter 1 in three steps, and what is to happen behind each. */
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
  it("is in what the model says, and its drafts, which are without it, change nothing", async () => {
    const path = join(directory, "heads.gguf");
    await writeTinyMtp(path, { seed: 5 });
    const adapter = join(directory, "heads-adapter.gguf");
    const targets = ["q_proj", "k_proj", "v_proj", "o_proj"];
    await writeGgufAdapter(adapter, { modelPath: path, seed: 6, targets, layers: [0, 1], magnitude: 2 });
    const model = await load(path, { threads: 1, heads: { path: null } });
    const base = await generated(model, 0, "", false);
    const plain = await generated(model, 1, adapter, false);
    assert.notDeepEqual(plain, base);
    assert.deepEqual(await generated(model, 2, adapter, true), plain);
    assert.deepEqual(await generated(model, 0, "", true), base);
    model.dispose();
  });
});

/** What the step loop makes of two prompts with an adapter that is there for them alone; 0 = none. */
async function generated(model: LoadedModel, adapter: number, path: string, isDrafting: boolean): Promise<number[][]> {
  // It always pays to draft.
  const cost = { decodeMs: (tokens: number) => 20 + 0.01 * tokens, mostDecodeTokens: 1000 } as StepCost;
  const options = { ...lookupOnly, promptLookup: false, headTokens: 4 };
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
