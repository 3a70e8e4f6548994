import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ModelSpec } from "../../../engines/engine.ts";
import { contextSizes } from "../../../engines/llama/context-sizes.ts";
import type { ModelTraits } from "../../../engines/llama/model-traits.ts";
import { specOf } from "../../fixtures/models/models.ts";

const generating: ModelTraits = {
  kv: { layers: 2, elementsPerLayer: 128, bytesPerElement: 2, trainedContext: 2048 },
  isEncoder: false,
  rollsBack: true,
  pooling: "mean",
  pooledLength: 64,
  hasMrope: false,
};
const tokenBytes = 512;
const mainMemory = { freeBytes: 2 ** 30, gpuBytes: null };

function sizes(changes: Partial<ModelSpec>, traits: Partial<ModelTraits> = {}, gpuBytes: number | null = null) {
  return contextSizes(specOf("", changes), { ...generating, ...traits }, { ...mainMemory, gpuBytes });
}

describe("the sizes of a llama.cpp context", () => {
  it("are one stream per sequence in main memory, and one pool on a GPU or if requested", () => {
    assert.equal(sizes({}).mode, "streams");
    assert.equal(sizes({}, {}, 2 ** 31).mode, "unified");
    assert.equal(sizes({ pagedKv: true }).mode, "unified");
    assert.equal(sizes({ pagedKv: false }, {}, 2 ** 31).mode, "streams");
  });

  it("are streams for a model whose sequences cannot share cells", () => {
    assert.equal(sizes({ pagedKv: true }, { rollsBack: false }).mode, "streams");
  });

  it("give streams an equal share of the budget", () => {
    const { capacity, contextTokens, sequences, kvCacheBytes } = sizes({ maxSequences: 4, kvBudget: { tokens: 1100 } });
    assert.deepEqual([capacity.sequenceTokens, capacity.kvBlocks, contextTokens, sequences], [256, 32, 1024, 4]);
    assert.equal(kvCacheBytes, 1024 * tokenBytes);
  });

  it("give a pool the whole budget, and each sequence up to its maximum", () => {
    const { capacity, contextTokens, sequences, kvCacheBytes } = sizes({
      pagedKv: true,
      maxSequences: 4,
      maxModelLength: null,
      kvBudget: { tokens: 1100 },
    });
    assert.deepEqual([capacity.sequenceTokens, capacity.kvBlocks, contextTokens], [1024, 32, 1024]);
    assert.equal(kvCacheBytes, 1024 * tokenBytes);
    // The context has one sequence more than there are slots: exports of saved KV use the extra sequence.
    assert.equal(sequences, 5);
  });

  it("make a pool of no given size no larger than all slots and some copies can fill", () => {
    const { contextTokens, capacity } = sizes({ pagedKv: true, maxSequences: 4, maxModelLength: 512 });
    assert.deepEqual([contextTokens, capacity.sequenceTokens], [2560, 512]);
  });

  it("count only whole blocks of a pool", () => {
    const { capacity } = sizes({ pagedKv: true, kvBudget: { tokens: 256 }, blockTokens: 12, maxModelLength: null });
    assert.deepEqual([capacity.kvBlocks, capacity.sequenceTokens], [21, 252]);
  });

  it("leave room for the requested logits, and one row per native sequence", () => {
    const { capacity, maxOutputs } = sizes({ maxSequences: 32, extraLogitsRows: 100 });
    assert.deepEqual([capacity.maxLogitsRows, maxOutputs], [132, 132]);
    assert.ok(sizes({ pagedKv: true, maxSequences: 256, extraLogitsRows: 0 }).maxOutputs >= 256);
  });

  it("let an encoder process its longest sequence at once", () => {
    const encoder = { isEncoder: true, rollsBack: false };
    const short = sizes({ maxModelLength: null, maxBatchTokens: 4096 }, encoder);
    assert.deepEqual([short.mode, short.capacity.sequenceTokens, short.passTokens], ["none", 2048, 2048]);
    const long = sizes({ maxModelLength: 100, maxBatchTokens: 4096 }, encoder);
    assert.deepEqual([long.capacity.sequenceTokens, long.passTokens, long.kvCacheBytes], [100, 512, 0]);
    // The model has no embeddings for positions beyond the trained context.
    assert.equal(sizes({ maxModelLength: 9999, maxBatchTokens: 9999 }, encoder).capacity.sequenceTokens, 2048);
    assert.equal(sizes({ maxSequences: 12 }, encoder).passTokens, 516);
  });
});
