// KV pool of the wasm engine on real threads: KV that was shared, saved or moved gives the same numbers as recomputed KV.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { assertNear, blockTokens, feed, load, logits, maxSequences, otherFrom, otherText, text } from "./wasm-steps.ts";

/** Feeds a row for which the pool of 256 tokens has too little room. */
function feedUnreserved(model: LoadedModel): void {
  const batch = new Batch(1, 256);
  batch.addRow(3, text, 0, 128, 1, 0);
  model.step(batch);
}

describe("the KV pool of the wasm engine", () => {
  let model: LoadedModel;
  before(async () => {
    model = await load();
  });
  after(() => model.dispose());

  function releaseAll(): void {
    for (let slot = 0; slot < maxSequences; slot++) model.kv.release(slot);
    assert.equal(model.kv.freeBlocks, model.capacity.kvBlocks, "every block is free again");
  }

  for (const shared of [32, 39]) {
    it(`lets a sequence continue from ${shared} tokens of a running one, bit for bit, without changing that one`, () => {
      const ends = [shared, 45];
      const other = otherFrom(shared);
      const alone = feed(model, 0, text, [...ends, 60]);
      const otherAlone = feed(model, 1, other, [...ends, 60]);
      releaseAll();
      feed(model, 0, text, ends);
      model.kv.copyPrefix(0, 1, shared);
      logits(model, { slot: 1, from: shared, to: 45, tokens: other });
      assert.deepEqual(logits(model, { slot: 0, from: 45, to: 60 }), alone);
      assert.deepEqual(logits(model, { slot: 1, from: 45, to: 60, tokens: other }), otherAlone);
      releaseAll();
    });
  }

  it("lets several sequences continue from a running one in the same step, each as if alone", () => {
    const alone = [text, otherFrom(39)].map((tokens, slot) => feed(model, slot, tokens, [39, 40]));
    releaseAll();
    feed(model, 0, text, [39]);
    const batch = new Batch(maxSequences, 4);
    // The row of the running sequence comes first. Its pages are reserved before the other sequences share them.
    for (const [slot, tokens] of [text, otherFrom(39), text, otherFrom(39)].entries()) {
      if (slot > 0) model.kv.copyPrefix(0, slot, 39);
      assert.ok(model.kv.reserve(slot, 40));
      batch.addRow(slot, tokens, 39, 40, 1, 0);
    }
    const { logits: all } = model.step(batch);
    const { vocabSize } = model.card;
    for (let slot = 0; slot < maxSequences; slot++) {
      assert.deepEqual([all.slice(slot * vocabSize, (slot + 1) * vocabSize)], alone[slot % 2], `slot ${slot}`);
    }
    releaseAll();
  });

  it("restores saved, exported, dropped and imported KV, bit for bit", () => {
    logits(model, { slot: 0, from: 0, to: 100 });
    const saved = model.kv.save(0);
    assert.ok(saved);
    const bytes = model.kv.export(saved);
    model.kv.drop(saved);
    model.kv.release(0);
    // Another sequence overwrites the pages in the meantime.
    logits(model, { slot: 2, from: 0, to: 200, tokens: otherText });
    for (const tokens of [100, 90, 64]) {
      const imported = model.kv.import(bytes, tokens);
      assert.ok(imported);
      model.kv.restore(1, imported, tokens);
      model.kv.drop(imported);
      const next = logits(model, { slot: 1, from: tokens, to: 120 });
      model.kv.release(1);
      logits(model, { slot: 1, from: 0, to: 100 });
      assert.deepEqual(next, logits(model, { slot: 1, from: tokens, to: 120 }));
      model.kv.release(1);
    }
    releaseAll();
  });

  it("exports bytes that do not depend on the number of threads", async () => {
    logits(model, { slot: 0, from: 0, to: 100 });
    const saved = model.kv.save(0);
    assert.ok(saved);
    const bytes = model.kv.export(saved);
    model.kv.drop(saved);
    const [expected] = logits(model, { slot: 0, from: 100, to: 101 });
    const other = await load({ threads: 3 });
    try {
      assert.equal(other.kv.layout, model.kv.layout);
      const imported = other.kv.import(bytes, 100);
      assert.ok(imported);
      assert.deepEqual(other.kv.export(imported), bytes);
      other.kv.restore(2, imported, 100);
      const [actual] = logits(other, { slot: 2, from: 100, to: 101 });
      assertNear(actual as Float32Array, expected as Float32Array, 1e-4);
    } finally {
      other.dispose();
    }
    releaseAll();
  });

  it("rejects what does not fit without changes, and frees blocks when a copy is dropped", async () => {
    const small = await load({ kvBudget: { tokens: 256 }, maxModelLength: 256 });
    try {
      assert.equal(small.capacity.kvBlocks, 256 / blockTokens);
      assert.equal(small.capacity.sequenceTokens, 256);
      logits(small, { slot: 0, from: 0, to: 96 });
      logits(small, { slot: 1, from: 0, to: 96, tokens: otherText });
      const saved = small.kv.save(1);
      assert.ok(saved);
      small.kv.release(1);
      const { freeBlocks } = small.kv;
      assert.equal(freeBlocks, 4);
      assert.equal(small.kv.reserve(2, 96), false);
      assert.equal(small.kv.import(small.kv.export(saved), 96), null);
      assert.equal(small.kv.freeBlocks, freeBlocks);
      const next = logits(small, { slot: 0, from: 96, to: 97 });
      small.kv.drop(saved);
      logits(small, { slot: 2, from: 0, to: 96 });
      assert.deepEqual(logits(small, { slot: 2, from: 96, to: 97 }), next);
      assert.throws(() => feedUnreserved(small), /not reserved/);
    } finally {
      small.dispose();
    }
  });

  it("rejects a pool too small for a short context, naming both", async () => {
    await assert.rejects(
      load({ kvBudget: { tokens: 200 } }),
      (error: ServerError) => error.code === "config_invalid" && /200 tokens.*at least 256/.test(error.message),
    );
  });
});
