import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type KvPool, kvPool } from "../../../engines/decoding/kv/kv-budget.ts";
import type { ModelSpec } from "../../../engines/engine.ts";
import { specOf } from "../../fixtures/models/models.ts";

/** KV shape that takes 1000 bytes per token. */
const shape = { layers: 5, elementsPerLayer: 100, bytesPerElement: 2, trainedContext: 8192 };

function pool(changes: Partial<ModelSpec>, threads = 1): KvPool {
  const spec = specOf("m.gguf", { maxModelLength: null, blockTokens: 32, ...changes });
  return kvPool(spec, shape, { freeBytes: 8_000_000, gpuBytes: null }, threads);
}

describe("the KV pool", () => {
  it("has the whole budget for any number of sequences, and one sequence may use it all", () => {
    for (const maxSequences of [1, 64]) {
      assert.deepEqual(pool({ kvBudget: { tokens: 4096 }, maxSequences }), {
        blocksPerThread: 128,
        sequenceTokens: 4096,
      });
    }
    assert.deepEqual(pool({ kvBudget: null }), { blocksPerThread: 62, sequenceTokens: 62 * 32 });
  });

  it("limits a sequence to the length of the model and the configuration", () => {
    assert.equal(pool({ kvBudget: { tokens: 100_000 } }).sequenceTokens, 8192);
    assert.equal(pool({ kvBudget: { tokens: 100_000 }, maxModelLength: 1000 }).sequenceTokens, 1000);
  });

  it("gives every thread the same number of whole blocks, within the budget", () => {
    assert.deepEqual(pool({ kvBudget: { tokens: 1000 } }, 4), { blocksPerThread: 7, sequenceTokens: 7 * 4 * 32 });
  });

  it("holds a short context even if the budget is not a whole number of blocks on each thread", () => {
    assert.deepEqual(pool({ kvBudget: { tokens: 256 } }, 3), { blocksPerThread: 3, sequenceTokens: 288 });
    assert.equal(pool({ kvBudget: { tokens: 64 }, maxModelLength: 64 }).sequenceTokens, 64);
  });

  it("is rejected if a short context does not fit", () => {
    assert.throws(() => pool({ kvBudget: { bytes: 255_999 } }), {
      code: "config_invalid",
      param: "kv_cache",
      message: /255 tokens.*at least 256 are needed \(1000 bytes a token\)/,
    });
  });
});
