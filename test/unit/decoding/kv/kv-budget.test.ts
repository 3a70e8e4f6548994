import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { budgetTokens, kvPool, tokensPerSequence } from "../../../../engines/decoding/kv/kv-budget.ts";
import type { ModelSpec } from "../../../../engines/engine.ts";
import { specOf } from "../../../fixtures/models/models.ts";

/** KV shape that takes 1000 bytes per token. */
const shape = { layers: 5, elementsPerLayer: 100, bytesPerElement: 2, trainedContext: 8192 };
const freeBytes = 8_000_000;

function budget(kvBudget: ModelSpec["kvBudget"], gpuBytes: number | null = null): number {
  return budgetTokens(specOf("m.gguf", { kvBudget }), shape, { freeBytes, gpuBytes });
}

describe("the KV budget", () => {
  it("is the configured one, or a quarter of the free memory", () => {
    assert.deepEqual([budget({ tokens: 1234 }), budget({ bytes: 5_000_999 }), budget(null)], [1234, 5000, 2000]);
  });

  it("as a fraction is a part of the free main memory", () => {
    assert.deepEqual([budget({ fraction: 0.5 }), budget({ fraction: 1 })], [4000, 8000]);
  });

  it("as a fraction of a GPU excludes the memory in use", () => {
    // 12 of 20 MB are in use.
    assert.deepEqual([budget({ fraction: 0.9 }, 20_000_000), budget({ fraction: 1 }, 20_000_000)], [6000, 8000]);
  });

  it("is refused with the numbers if a fraction of a GPU leaves nothing", () => {
    assert.throws(() => budget({ fraction: 0.5 }, 20_000_000), {
      code: "config_invalid",
      param: "gpu_memory_utilization",
      message: /more of the GPU's 19 MiB than is in use with the weights \(11 MiB\); got 0\.5, which is 10 MiB/,
    });
  });

  it("in equal shares is at most the length of a sequence, in whole context steps", () => {
    const share = (changes: Partial<ModelSpec>) =>
      tokensPerSequence(specOf("m.gguf", { maxModelLength: null, ...changes }), shape, freeBytes);
    assert.equal(share({ kvBudget: { tokens: 4 * 600 } }), 512);
    assert.equal(share({ kvBudget: { tokens: 4 * 600 }, maxModelLength: 300 }), 300);
    assert.equal(share({ kvBudget: { fraction: 1 }, maxSequences: 2 }), 3840);
    assert.throws(() => share({ kvBudget: { tokens: 4 * 255 } }), { code: "config_invalid", param: "kv_cache" });
  });
});

describe("the KV pool", () => {
  const pool = (changes: Partial<ModelSpec>, threads: number) =>
    kvPool(specOf("m.gguf", { maxModelLength: null, ...changes }), shape, { freeBytes, gpuBytes: null }, threads);

  it("holds one sequence up to the model's length", () => {
    const kvBudget = { tokens: 4000 };
    assert.deepEqual(pool({ kvBudget, pagedKv: true }, 2), { blocksPerThread: 62, sequenceTokens: 3968 });
    assert.equal(pool({ kvBudget, pagedKv: true, maxModelLength: 1000 }, 2).sequenceTokens, 1000);
  });

  it("has room for all sequences on every thread if paging is off", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 3000, max: 20_000 }),
        (maxSequences, threads, tokens) => {
          const { blocksPerThread, sequenceTokens } = pool(
            { kvBudget: { tokens }, pagedKv: false, maxSequences, blockTokens: 16 },
            threads,
          );
          // The first thread holds the first block of every sequence.
          const firstThreadBlocks = Math.ceil(sequenceTokens / 16 / threads);
          assert.ok(firstThreadBlocks * maxSequences <= blocksPerThread);
          assert.ok(sequenceTokens >= Math.min(tokens / maxSequences, shape.trainedContext) - 2 * 16 * threads);
        },
      ),
    );
  });

  it("is refused if the share of a sequence is too small", () => {
    assert.throws(() => pool({ kvBudget: { tokens: 1000 }, pagedKv: false, maxSequences: 8 }, 2), {
      code: "config_invalid",
      param: "kv_cache",
      message: /leaves 125 for each of 8 sequences; at least 256 are needed/,
    });
  });
});
