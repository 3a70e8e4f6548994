// LoRA adapters of the wasm engine on real threads: each row of a step has its own adapter, independent of the other
// rows, and adapters are loaded and freed while steps run.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it, type TestContext } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { Batch } from "../../../engines/batch.ts";
import type { AdapterHost, AdapterLimits, LoadedModel } from "../../../engines/engine.ts";
import { prepareAdapter } from "../../../engines/files/lora/prepare.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import type { WasmModel } from "../../../engines/wasm/model.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { type LoraOptions, mergedModel, writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";
import { assertNear } from "./wasm-steps.ts";

const limits: AdapterLimits = { maxAdapters: 16, maxRank: 64, maxBytes: 2 ** 24 };
const maxSequences = 6;
/** Number of prompt tokens: more than fit into one forward pass. */
const promptTokens = 100;
const text = Int32Array.from({ length: 128 }, (_, i) => 3 + ((i * i * 31 + i * 7) % 500));

let folder = "";
let modelPath = "";
/** Paths of prepared adapters with targets and ranks of every kind. */
const adapters: string[] = [];
const kinds: readonly Omit<LoraOptions, "modelPath" | "seed">[] = [
  { rank: 16, targets: "all-linear" },
  { rank: 8, targets: "attention" },
  { rank: 3, targets: ["v_proj"], layers: [1] },
  { rank: 5, targets: ["q_proj", "down_proj", "lm_head"], rankPattern: { q_proj: 33 } },
  { rank: 4, targets: ["gate_proj", "o_proj"] },
];

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "troupe-wasm-lora-"));
  modelPath = join(folder, "tiny.gguf");
  await writeTinyModel(modelPath, { seed: 7, width: 128, heads: 4, kvHeads: 2, feedForward: 160, vocabularySize: 509 });
  for (const [seed, kind] of kinds.entries()) {
    const source = join(folder, `adapter-${seed}`);
    await writePeftAdapter(source, { modelPath, seed, ...kind });
    const { path } = await prepareAdapter({ source, root: null, modelPath, limits, folder: join(folder, "prepared") });
    adapters.push(path);
  }
});
after(() => rmSync(folder, { recursive: true }));

/** Loads a model that has adapter i of `adapters` under the id i + 1. */
async function load(test: TestContext, threads: number, count = adapters.length): Promise<WasmModel> {
  const sizes = { maxSequences, maxBatchTokens: maxSequences * promptTokens, extraLogitsRows: 200 };
  const spec = specOf(modelPath, { threads, ...sizes, kvType: "f32", adapters: limits });
  const model = (await wasmEngine.load(spec, () => undefined)) as WasmModel;
  test.after(() => model.dispose());
  for (let i = 0; i < count; i++) await hostOf(model).load(i + 1, adapters[i]!);
  return model;
}

function hostOf(model: LoadedModel): AdapterHost {
  assert.ok(model.adapters);
  return model.adapters;
}

interface Row {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
  readonly adapter: number;
  readonly logitsCount?: number;
}

/** Runs one step and returns the logits after each row. */
function step(model: LoadedModel, rows: readonly Row[]): Float32Array[] {
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  for (const { slot, from, to, adapter, logitsCount = 1 } of rows) {
    assert.ok(model.kv.reserve(slot, to));
    batch.addRow(slot, text, from, to, logitsCount, adapter);
  }
  const { logits, logitsRow } = model.step(batch);
  const { vocabSize } = model.card;
  return rows.map(({ logitsCount = 1 }, row) =>
    logits.slice(logitsRow[row]! * vocabSize, (logitsRow[row]! + logitsCount) * vocabSize),
  );
}

/**
 * Runs all adapters in `ids` in the same steps, each in a separate slot: a prompt, then some tokens one by one. Returns the
 * logits of each adapter after the prompt and after each later token.
 */
function generate(model: LoadedModel, ids: readonly number[], tokens = promptTokens): Float32Array[][] {
  const feed = (from: number, to: number) =>
    step(
      model,
      ids.map((adapter, slot) => ({ slot, from, to, adapter })),
    );
  const steps = [feed(0, tokens), ...[0, 1, 2].map((i) => feed(tokens + i, tokens + i + 1))];
  for (const slot of ids.keys()) model.kv.release(slot);
  return ids.map((_, slot) => steps.map((logits) => logits[slot]!));
}

describe("adapters of the wasm engine", () => {
  for (const threads of [1, 2, 3]) {
    it(`give a row the same results in a batch as alone, bit for bit, and base rows those without adapters: ${threads} threads`, async (test) => {
      const model = await load(test, threads);
      assert.equal(model.capabilities.adaptersPerStep, maxSequences);
      const plain = await load(test, threads, 0);
      const ids = [3, 0, 1, 4, 2, 5];
      const together = generate(model, ids);
      for (const [i, id] of ids.entries()) {
        const alone = id === 0 ? generate(plain, [0]) : generate(model, [id]);
        assert.deepEqual(together[i], alone[0], `adapter ${id}`);
      }
      assert.equal(
        new Set(together.map(([prompt]) => prompt!.join())).size,
        ids.length,
        "every adapter says something else",
      );
    });
  }

  it("share one adapter among rows, prompts beside single tokens", async (test) => {
    const model = await load(test, 2);
    const [alone] = generate(model, [1]);
    step(model, [{ slot: 1, from: 0, to: promptTokens, adapter: 1 }]);
    const [prompt, next] = step(model, [
      { slot: 0, from: 0, to: promptTokens, adapter: 1 },
      { slot: 1, from: promptTokens, to: promptTokens + 1, adapter: 1 },
      { slot: 2, from: 0, to: 40, adapter: 2 },
    ]);
    assert.deepEqual([prompt, next], alone!.slice(0, 2));
  });

  it("change the model like merged weights", async (test) => {
    const model = await load(test, 2);
    for (const i of kinds.keys()) {
      const merged = join(folder, "merged.gguf");
      await mergedModel(modelPath, join(folder, `adapter-${i}`), merged);
      const reference = await wasmEngine.load(specOf(merged, { threads: 2, kvType: "f32" }), () => undefined);
      test.after(() => reference.dispose());
      const expected = generate(reference, [0])[0]!;
      const [actual] = generate(model, [i + 1]);
      for (const [at, logits] of expected.entries()) assertNear(actual![at]!, logits, 0.002);
    }
  });

  it("apply to every logits row of a row that wants several", async (test) => {
    const model = await load(test, 2);
    const all = { from: 0, to: promptTokens, logitsCount: promptTokens };
    const [first, second] = step(model, [
      { slot: 0, adapter: 4, ...all },
      { slot: 1, adapter: 0, ...all },
    ]);
    const { vocabSize } = model.card;
    const [adapted] = generate(model, [4], 90);
    const [plain] = generate(model, [0], 90);
    const rowOf = (logits: Float32Array) => logits.subarray(89 * vocabSize, 90 * vocabSize);
    assertNear(rowOf(first!), adapted![0]!, 1e-5);
    assertNear(rowOf(second!), plain![0]!, 1e-5);
  });

  it("are loaded and unloaded while steps run, without affecting them", async (test) => {
    const model = await load(test, 2, 1);
    const { adapters: host } = model;
    assert.ok(host);
    const expected = generate(model, [0, 1], 20);
    let isLoading = true;
    const loading = (async () => {
      for (let id = 10; id < 22; id++) {
        await host.load(id, adapters[id % adapters.length]!);
        if (id % 3 !== 0) host.unload(id);
      }
      isLoading = false;
    })();
    let steps = 0;
    for (; isLoading || steps === 0; steps++) {
      assert.deepEqual(generate(model, [0, 1], 20), expected);
      host.checkIntegrity();
      await nextTurn();
    }
    await loading;
    assert.ok(steps > 2, "steps ran while adapters were loaded");
    // The remaining adapters now occupy the memory of unloaded ones. Ids 15 and 21 are adapters 0 and 1.
    assert.deepEqual(generate(model, [15, 21]), generate(await load(test, 2), [1, 2]));
  });

  it("free their memory in any order of loading and unloading", async (test) => {
    const model = await load(test, 2, 0);
    const { adapters: host } = model;
    assert.ok(host);
    let id = 0;
    const action = fc.record({ adapter: fc.nat({ max: adapters.length - 1 }), drop: fc.nat({ max: 12 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 8 }), async (actions) => {
        const held: number[] = [];
        for (const { adapter, drop } of actions) {
          held.push(++id);
          await host.load(id, adapters[adapter]!);
          const [gone] = held.splice(drop, 1);
          if (gone !== undefined) host.unload(gone);
          host.checkIntegrity();
        }
        assert.equal(host.usedBytes > 0, held.length > 0);
        for (const each of held) host.unload(each);
        host.checkIntegrity();
        assert.equal(host.usedBytes, 0);
      }),
      { numRuns: 12 },
    );
  });

  it("are rejected if memory is short, without changes", async (test) => {
    const sizes = adapters.map((path) => readFileSync(path).length);
    const maxBytes = sizes[0]! + sizes[1]!;
    const spec = specOf(modelPath, { threads: 2, maxSequences, kvType: "f32", adapters: { ...limits, maxBytes } });
    const model = (await wasmEngine.load(spec, () => undefined)) as WasmModel;
    test.after(() => model.dispose());
    const host = hostOf(model);
    await host.load(1, adapters[0]!);
    await host.load(2, adapters[1]!);
    const before = generate(model, [1, 2, 0]);
    const bytes = model.adapters?.usedBytes;
    await assert.rejects(host.load(3, adapters[0]!), (error: ServerError) => {
      assert.equal(error.code, "lora_device_load_failed");
      assert.match(error.message, /no room for the adapter's [\d.]+ MiB: [\d.]+ MiB of [\d.]+ MiB are left/);
      return error.retryable;
    });
    assert.equal(model.adapters?.usedBytes, bytes);
    assert.deepEqual(generate(model, [1, 2, 0]), before);
    host.unload(1);
    await host.load(4, adapters[0]!);
    assert.deepEqual(generate(model, [4]), [before[0]]);
  });

  it("are rejected if the file is truncated or of another model, and the next one is loaded", async (test) => {
    const model = await load(test, 2, 0);
    const host = hostOf(model);
    const cut = join(folder, "cut.gguf");
    copyFileSync(adapters[0]!, cut);
    truncateSync(cut, 40_000);
    const other = join(folder, "other.gguf");
    await writeTinyModel(other, { seed: 8 });
    for (const path of [cut, other, join(folder, "none.gguf")]) {
      await assert.rejects(host.load(1, path), { code: "lora_device_load_failed" });
    }
    assert.equal(model.adapters?.usedBytes, 0);
    await host.load(1, adapters[0]!);
    assert.deepEqual(generate(model, [1]), generate(await load(test, 2, 1), [1]));
  });

  it("are loaded one at a time, and not into a disposed model", async (test) => {
    const model = await load(test, 2, 0);
    const host = hostOf(model);
    await Promise.all([1, 2, 3].map((id) => host.load(id, adapters[id - 1]!)));
    assert.deepEqual(generate(model, [3, 2]), generate(await load(test, 2), [3, 2]));
    const loading = [4, 5].map((id) => host.load(id, adapters[id - 1]!));
    model.dispose();
    for (const each of loading) await assert.rejects(each, { code: "lora_device_load_failed" });
  });

  it("fail a step that names a missing adapter", async (test) => {
    const model = await load(test, 2, 1);
    const expected = generate(model, [1]);
    for (const adapter of [2, -1]) {
      assert.throws(() => step(model, [{ slot: 0, from: 0, to: 1, adapter }]), { code: "model_failed" });
    }
    hostOf(model).unload(1);
    assert.throws(() => step(model, [{ slot: 0, from: 0, to: 1, adapter: 1 }]), /adapter 1 is not loaded/);
    model.kv.release(0);
    await hostOf(model).load(2, adapters[0]!);
    assert.deepEqual(generate(model, [2]), expected);
  });

  it("are absent unless configured", async (test) => {
    const model = await wasmEngine.load(specOf(modelPath, { threads: 2 }), () => undefined);
    test.after(() => model.dispose());
    assert.equal(model.capabilities.adaptersPerStep, 0);
    assert.equal(model.adapters ?? null, null);
    assert.throws(() => step(model, [{ slot: 0, from: 0, to: 1, adapter: 1 }]), { code: "model_failed" });
  });
});
