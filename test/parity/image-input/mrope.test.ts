// M-RoPE positions of prompts with images, on both engines: an image has fewer positions than embeddings, so positions are
// not indices of the KV cache. The logits stay the same however KV is dropped, copied, saved and restored.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch, type PromptSpan } from "../../../engines/batch.ts";
import { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import { Sequence } from "../../../engines/decoding/scheduler/sequence.ts";
import type { ImageSpec, LoadedModel } from "../../../engines/engine.ts";
import { openEngine } from "../../../engines/open-engine.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { tinyWidth, writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { seededGaussian } from "../../fixtures/models/tiny-gguf.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";

const next = seededGaussian(3);

function image(from: number, rows: number, columns: number): PromptSpan {
  const embeddings = Float32Array.from({ length: rows * columns * tinyWidth }, () => next());
  return { from, to: from + rows * columns, embeddings, attendsAhead: false, grid: { rows, columns } };
}

/** Prompt: 7 tokens, an image of 3 x 9 embeddings, 6 tokens, an image of 8 x 2, 14 tokens. */
const spans = [image(7, 3, 9), image(40, 8, 2)];
const total = 70;
const tokens = Int32Array.from({ length: total }, (_, i) =>
  spans.some(({ from, to }) => i >= from && i < to) ? -1 - i : 3 + ((i * i * 7) % 250),
);
/** Number of generated tokens: more than the scheduler reserves when it starts a sequence. */
const answerTokens = 130;
/** Size of the KV cache in tokens: room for three prompts, but not for three responses. */
const cacheTokens = 576;
/** Maximum difference between logits that count as equal, as a fraction of the range of the logits. */
const tolerance = 0.002;

function feed(model: LoadedModel, slot: number, from: number, to: number): Float32Array {
  assert.ok(model.kv.reserve(slot, to));
  const batch = new Batch(4, 128);
  batch.addRow(slot, tokens, from, to, tokens[to - 1]! < 0 ? 0 : 1, 0);
  batch.embed(spans);
  const { logits, logitsRow } = model.step(batch);
  const { vocabSize } = model.card;
  return logits.slice(logitsRow[0]! * vocabSize, (logitsRow[0]! + 1) * vocabSize);
}

/**
 * Runs sequences concurrently, each with its own output tokens. Returns the logits after each token of each sequence, and the
 * number of preemptions.
 */
function run(model: LoadedModel, seeds: readonly number[], prefixCacheEntries: number, swapBytes: number) {
  const scheduler = new Scheduler<Sequence>(model, {
    ...generousLimits,
    maxBatchTokens: 128,
    prefixCacheEntries,
    swapBytes,
  });
  const batch = new Batch(model.capacity.maxSequences, 128);
  const sequences = seeds.map((seed) => {
    const prompt = tokens.map((token, i) => (i < 60 ? token : 3 + ((token + seed) % 250)));
    const texts = { client: `client ${seed}`, hasQueueLimit: false, prompt, maxNewTokens: answerTokens, spans };
    const flags = { ignoreEos: true, adapter: 0, priority: 0, isPooled: false, wantsPromptLogits: false };
    return new Sequence({ ...texts, ...flags });
  });
  const found = sequences.map((): Float32Array[] => []);
  for (const sequence of sequences) scheduler.add(sequence);
  while (scheduler.schedule(batch)) {
    const { logits, logitsRow } = model.step(batch);
    scheduler.rows.forEach((sequence, row) => {
      const at = logitsRow[row]! * model.card.vocabSize;
      if (at < 0) return;
      const index = sequences.indexOf(sequence);
      const step = found[index]!.push(logits.slice(at, at + model.card.vocabSize));
      scheduler.accept(sequence, 3 + ((step * 37 + seeds[index]! * 11) % 250));
    });
    scheduler.endStep(1);
    scheduler.checkIntegrity();
  }
  return { found, preemptions: scheduler.statistics.preemptions.memory };
}

function assertSame(actual: Float32Array, expected: Float32Array): void {
  assert.equal(actual.length, expected.length);
  const range = Math.max(...expected) - Math.min(...expected);
  const worst = Math.max(...expected.map((value, i) => Math.abs(value - actual[i]!)));
  assert.ok(worst / range < tolerance, `differs by ${((100 * worst) / range).toFixed(2)} % of the range`);
}

const folder = mkdtempSync(join(tmpdir(), "troupe-mrope-"));
const path = join(folder, "model.gguf");
const others = join(folder, "others.gguf");
before(async () => {
  await writeTinyArchitecture(path, "qwen2vl", { seed: 5, weights: "F16" });
  await writeTinyArchitecture(others, "qwen2", { seed: 5, weights: "F16" });
});
after(() => rmSync(folder, { recursive: true, force: true }));

const images: ImageSpec = {
  ...{ projector: "qwen2vl_merger", layout: "cells", nestsSlices: false, tileTokens: 64, cellSize: 28 },
  ...{ hasGridPositions: true, attendsAhead: false },
  ...{ path: "", maxEdge: null, maxImages: 2, maxFrames: 2, cacheBytes: 0, maxMediaBytesInFlight: 2 ** 30 },
};
const kinds = [
  { engine: "wasm", pagedKv: true },
  { engine: "llama", pagedKv: false },
  { engine: "llama", pagedKv: true },
] as const;

for (const { engine, pagedKv } of kinds) {
  describe(`positions of images on ${engine}, ${pagedKv ? "in one pool" : "in streams"}`, () => {
    let model: LoadedModel;
    /** Logits after the last token. */
    let expected: Float32Array;
    before(async () => {
      const sizes = { threads: engine === "wasm" ? 2 : 1, maxSequences: 4, maxBatchTokens: 128, maxModelLength: 256 };
      const kvBudget = pagedKv ? { tokens: cacheTokens } : null;
      const changes = { ...sizes, kvBudget, pagedKv, kvType: "f16", images } as const;
      model = await (await openEngine(engine)).load(specOf(path, changes), () => {});
      expected = feed(model, 0, 0, total);
    });
    after(() => model.dispose());

    it("are the same however the prompt is cut into steps", () => {
      for (const ends of [
        [20, 45, 60, total],
        [7, 34, 40, 56, total],
        [35, 36, 69, total],
      ]) {
        let from = 0;
        let logits = expected;
        for (const to of ends) {
          logits = feed(model, 1, from, to);
          from = to;
        }
        assertSame(logits, expected);
        model.kv.release(1);
      }
    });

    it("are the same after tokens are dropped and computed again, and without drafted tokens in saved KV", () => {
      for (const from of [65, 58, 38, 3]) assertSame(feed(model, 0, from, total), expected);
      feed(model, 1, 0, total);
      const saved = model.kv.save(1, 66);
      assert.ok(saved);
      const bytes = model.kv.export(saved).slice();
      model.kv.drop(saved);
      const imported = model.kv.import(bytes, 66);
      assert.ok(imported, "the bytes are those of 66 tokens");
      model.kv.drop(imported);
      model.kv.release(1);
    });

    it("are the same in a slot that shares a prefix", () => {
      for (const shared of [5, 37, 60]) {
        model.kv.copyPrefix(0, 2, shared);
        assertSame(feed(model, 2, shared, total), expected);
        model.kv.release(2);
      }
    });

    it("are the same after KV is saved, whole and within an image, and restored, whole and in part", () => {
      for (const held of [total - 1, 20, 48]) {
        feed(model, 1, 0, held);
        const saved = model.kv.save(1);
        assert.ok(saved);
        model.kv.release(1);
        for (const restored of [held, 6, ...(held > 38 ? [38] : [])]) {
          model.kv.restore(2, saved, restored);
          assertSame(feed(model, 2, restored, total), expected);
          model.kv.release(2);
        }
        model.kv.drop(saved);
      }
    });

    it("are the same after KV was exported and imported as bytes", () => {
      for (const held of [66, 50, 30]) {
        feed(model, 1, 0, held);
        const saved = model.kv.save(1);
        assert.ok(saved);
        const bytes = model.kv.export(saved).slice();
        model.kv.drop(saved);
        model.kv.release(1);
        const imported = model.kv.import(bytes, held);
        assert.ok(imported);
        model.kv.restore(3, imported, held);
        model.kv.drop(imported);
        assertSame(feed(model, 3, held, total), expected);
        assertSame(feed(model, 3, 37, total), expected);
        model.kv.release(3);
      }
    });

    it("are rejected with a model that has one position per token", async () => {
      const opened = await openEngine(engine);
      const refusal = { code: "config_invalid", param: "mmproj", message: /belongs to a model with M-RoPE/ };
      await assert.rejects(
        opened.load(specOf(others, { threads: 1, images }), () => {}),
        refusal,
      );
    });

    it("are the same for sequences that share a prefix and are preempted", () => {
      model.kv.release(0);
      const seeds = [1, 2, 3];
      const alone = seeds.map((seed) => run(model, [seed], 0, 0).found[0]!);
      for (const [prefixes, swapBytes] of [
        [0, 0],
        [0, 2 ** 24],
        [8, 2 ** 24],
      ] as const) {
        const { found, preemptions } = run(model, seeds, prefixes, swapBytes);
        found.forEach((logits, i) => {
          assert.equal(logits.length, answerTokens);
          for (const [step, one] of logits.entries()) assertSame(one, alone[i]![step]!);
        });
        if (pagedKv && prefixes === 0) assert.ok(preemptions > 0, "a sequence was preempted");
      }
    });
  });
}
