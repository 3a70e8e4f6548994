// Threads of the wasm engine: the results do not depend on the number of threads, and the exit of a thread is always noticed.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { Worker } from "node:worker_threads";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel, ModelSpec } from "../../../engines/engine.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { specOf, tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyEncoder } from "../../fixtures/models/tiny-encoder.ts";

const prompt = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % 250);

async function load(test: TestContext, changes: Partial<ModelSpec> = {}): Promise<LoadedModel> {
  const spec = specOf(await tinyModel(), { threads: 2, kvType: "f32", ...changes });
  const model = await wasmEngine.load(spec, () => undefined);
  test.after(() => model.dispose());
  return model;
}

/** Loads an encoder. Returns it with a text that takes long to compute. */
async function loadEncoder(test: TestContext, abortFlag: SharedArrayBuffer | null) {
  const folder = mkdtempSync(join(tmpdir(), "troupe-long-pass-"));
  test.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "encoder.gguf");
  await writeTinyEncoder(path, { seed: 1, pooling: "mean", contextLength: 2048, layers: 60, width: 128 });
  const spec = specOf(path, { threads: 2, maxModelLength: null, maxBatchTokens: 2048, abortFlag });
  const model = await wasmEngine.load(spec, () => undefined);
  test.after(() => model.dispose());
  const batch = new Batch(1, 2048);
  batch.wantPooled[batch.addRow(0, new Int32Array(2048), 0, 2048, 0, 0)] = 1;
  return { model, batch };
}

/** Feeds the prompt to slot 0 in one step and returns the logits after it. */
function feed(model: LoadedModel): Float32Array {
  const batch = new Batch(1, prompt.length);
  batch.addRow(0, prompt, 0, prompt.length, 1, 0);
  return model.step(batch).logits.slice(0, model.card.vocabSize);
}

function largestDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((largest, value, i) => Math.max(largest, Math.abs(value - (b[i] as number))), 0);
}

describe("the wasm engine's threads", () => {
  it("compute the same for any number of threads, with unaligned passes and pages", async (test) => {
    const alone = await load(test, { threads: 1 });
    const expected = feed(alone);
    const range = Math.max(...expected) - Math.min(...expected);
    assert.ok(range > 0.1, "the model says something");
    for (const threads of [2, 3, 5]) {
      const model = await load(test, { threads });
      assert.ok(largestDifference(feed(model), expected) < range * 1e-4, `${threads} threads`);
    }
  });

  it("fail the pass, and every later one, when a thread has ended", async (test) => {
    const workers: Worker[] = [];
    const watch = (worker: Worker) => workers.push(worker);
    process.on("worker", watch);
    const model = await load(test, { threads: 3 });
    process.off("worker", watch);
    assert.equal(workers.length, 2);
    feed(model);
    await workers[0]?.terminate();
    for (let i = 0; i < 2; i++) {
      assert.throws(
        () => feed(model),
        (error: ServerError) => error.code === "model_failed" && error.retryable,
      );
    }
  });

  it("notice within a second that a thread ends during a pass", async (test) => {
    const workers: Worker[] = [];
    const watch = (worker: Worker) => workers.push(worker);
    process.on("worker", watch);
    const model = await load(test, { threads: 2 });
    process.off("worker", watch);
    // Not awaited, so that the next step starts before the exit event is delivered. That step blocks the event
    // loop, which would deliver the event.
    void workers[0]?.terminate();
    const started = performance.now();
    assert.throws(() => {
      while (performance.now() - started < 1000) feed(model);
    }, ServerError);
  });

  it("stop before the next pass when the model is being unloaded", async (test) => {
    const abortFlag = new SharedArrayBuffer(1);
    const model = await load(test, { abortFlag });
    feed(model);
    new Uint8Array(abortFlag)[0] = 1;
    assert.throws(() => feed(model), /aborted/);
  });

  it("notice that a thread ends during an encoder's pass", async (test) => {
    const workers: Worker[] = [];
    const watch = (worker: Worker) => workers.push(worker);
    process.on("worker", watch);
    const { model, batch } = await loadEncoder(test, null);
    process.off("worker", watch);
    void workers[0]?.terminate();
    assert.throws(() => model.step(batch), ServerError);
  });

  it("stop during an encoder's pass, which may take a minute", async (test) => {
    const abortFlag = new SharedArrayBuffer(1);
    const { model, batch } = await loadEncoder(test, abortFlag);
    const waits = "const { workerData: [flag, go] } = require('node:worker_threads');";
    // Waits until the main thread is about to start the step, and then for 50 ms more.
    const sets = "const word = new Int32Array(go); Atomics.wait(word, 0, 0); Atomics.wait(word, 0, 1, 50);";
    const aborts = "new Uint8Array(flag)[0] = 1;";
    const go = new SharedArrayBuffer(4);
    const other = new Worker(waits + sets + aborts, { eval: true, workerData: [abortFlag, go] });
    await once(other, "online");
    Atomics.store(new Int32Array(go), 0, 1);
    Atomics.notify(new Int32Array(go), 0);
    assert.throws(() => model.step(batch), /aborted/);
    assert.throws(() => model.step(batch), /aborted/, "and never continues");
  });

  it("copy every shared page, when more sequences share a prefix than a pass has tokens", async (test) => {
    const count = 70;
    const model = await load(test, { maxSequences: count, maxModelLength: 64, kvBudget: { tokens: count * 256 } });
    const batch = new Batch(count, 512);
    batch.addRow(0, prompt, 0, 42, 0, 0);
    model.step(batch);
    const saved = model.kv.save(0);
    assert.ok(saved);
    model.kv.release(0);
    batch.clear();
    for (let slot = 0; slot < count; slot++) {
      model.kv.restore(slot, saved, 41);
      batch.addRow(slot, prompt, 41, 42, 1, 0);
    }
    const { logits, logitsRow } = model.step(batch);
    const { vocabSize } = model.card;
    const rowOf = (slot: number) =>
      logits.slice((logitsRow[slot] ?? 0) * vocabSize, ((logitsRow[slot] ?? 0) + 1) * vocabSize);
    const first = rowOf(0);
    for (let slot = 1; slot < count; slot++) assert.deepEqual(rowOf(slot), first, `slot ${slot}`);
  });

  it("name the problem when a share of the model and its KV cache does not fit a memory", async () => {
    const path = await tinyModel();
    const kvBudget = { bytes: 40 * 2 ** 30 };
    const spec = specOf(path, { threads: 3, kvType: "f32", maxSequences: 64, maxModelLength: null, kvBudget });
    const big = { ...spec, maxModelLength: 2 ** 20 };
    await assert.rejects(
      wasmEngine.load(big, () => undefined),
      (error: ServerError) => error.code === "config_invalid" && /4 GiB/.test(error.message),
    );
  });
});
