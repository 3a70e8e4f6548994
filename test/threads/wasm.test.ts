// The wasm engine on real threads: whatever their number they compute one model, and none of them ends unnoticed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Worker } from "node:worker_threads";
import { Batch } from "../../engines/batch.ts";
import type { LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import { specOf, tinyModel } from "../fixtures/models.ts";

const prompt = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % 250);

async function load(changes: Partial<ModelSpec> = {}): Promise<LoadedModel> {
  return wasmEngine.load(specOf(await tinyModel(), { threads: 2, kvType: "f32", ...changes }), () => undefined);
}

/** Feeds the prompt to slot 0 in one step and returns the logits behind it. */
function feed(model: LoadedModel): Float32Array {
  const batch = new Batch(1, prompt.length);
  batch.addRow(0, prompt, 0, prompt.length, true, 0);
  return model.step(batch).logits.slice(0, model.card.vocabSize);
}

function largestDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((largest, value, i) => Math.max(largest, Math.abs(value - (b[i] as number))), 0);
}

describe("the wasm engine's threads", () => {
  it("compute the same whatever their number, in passes and pages that do not end together", async () => {
    const alone = await load({ threads: 1 });
    const expected = feed(alone);
    alone.dispose();
    const range = Math.max(...expected) - Math.min(...expected);
    assert.ok(range > 0.1, "the model says something");
    for (const threads of [2, 3, 5]) {
      const model = await load({ threads });
      assert.ok(largestDifference(feed(model), expected) < range * 1e-4, `${threads} threads`);
      model.dispose();
    }
  });

  it("fail the pass, and every one after it, when one of them has ended", async () => {
    const workers: Worker[] = [];
    const watch = (worker: Worker) => workers.push(worker);
    process.on("worker", watch);
    const model = await load({ threads: 3 });
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
    model.dispose();
  });

  it("notice within a second that one of them ends in the middle of a pass", async () => {
    const workers: Worker[] = [];
    const watch = (worker: Worker) => workers.push(worker);
    process.on("worker", watch);
    const model = await load({ threads: 2 });
    process.off("worker", watch);
    // Not awaited: the step below starts before the end has been heard of, and blocks the event loop that would tell.
    void workers[0]?.terminate();
    const started = performance.now();
    assert.throws(() => {
      for (;;) feed(model);
    }, ServerError);
    assert.ok(performance.now() - started < 1000);
    model.dispose();
  });

  it("stop before the next pass when the model is to be unloaded", async () => {
    const abortFlag = new SharedArrayBuffer(1);
    const model = await load({ abortFlag });
    feed(model);
    new Uint8Array(abortFlag)[0] = 1;
    assert.throws(() => feed(model), /aborted/);
    model.dispose();
  });
});
