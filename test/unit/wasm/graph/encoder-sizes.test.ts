import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { ModelSpec } from "../../../../engines/engine.ts";
import type { Hyperparameters } from "../../../../engines/wasm/graph/shape.ts";
import { encoderSizes, passBytes } from "../../../../engines/wasm/load/encoder-sizes.ts";
import { readModel, wasmRefusal } from "../../../../engines/wasm/load/fit.ts";
import { createMemory, instantiateKernels, loadKernels } from "../../../../engines/wasm/load/kernel-module.ts";
import { divideGraph } from "../../../../engines/wasm/plan/partition-plan.ts";
import { layOut } from "../../../../engines/wasm/threads/thread-memory.ts";
import { specOf } from "../../../fixtures/models/models.ts";
import { writeTinyEncoder } from "../../../fixtures/models/tiny-encoder.ts";

let folder = "";
let path = "";
let shape: Hyperparameters;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "troupe-encoder-"));
  path = join(folder, "encoder.gguf");
  await writeTinyEncoder(path, { seed: 1, pooling: "mean", contextLength: 8192 });
  ({ shape } = await readModel(path));
});
after(() => rmSync(folder, { recursive: true, force: true }));

function sizes(changes: Partial<ModelSpec>, of: Partial<Hyperparameters> = {}, threads = 2) {
  const spec = specOf(path, { maxModelLength: null, maxBatchTokens: 10_000, maxSequences: 32, ...changes });
  return encoderSizes(spec, { ...shape, ...of }, threads);
}

describe("the sizes of an encoder", () => {
  it("let a pass contain the longest sequence that the model, the settings and a step allow", () => {
    for (const [changes, tokens] of [
      [{}, 8192],
      [{ maxModelLength: 1000 }, 1000],
      // The model has no embeddings for positions beyond the trained context.
      [{ maxModelLength: 9999 }, 8192],
      [{ maxBatchTokens: 2048 }, 2048],
    ] as const) {
      const { capacity, passTokens } = sizes(changes);
      assert.deepEqual([capacity.sequenceTokens, passTokens], [tokens, tokens]);
    }
  });

  it("let several short sequences share a pass", () => {
    const { capacity, passTokens, maxRows } = sizes({ maxModelLength: 50 });
    assert.deepEqual([capacity.sequenceTokens, passTokens, maxRows], [50, 256, 32]);
    assert.equal(sizes({ maxModelLength: 50, maxBatchTokens: 100 }).passTokens, 100);
  });

  it("limit the scratch memory of a wide model, and so the length of a sequence", () => {
    const wide = { width: 16_384, feedForward: 65_536, heads: 128, kvHeads: 128, headLength: 128 };
    const few = sizes({}, wide).capacity.sequenceTokens;
    assert.ok(few > 0 && few < 1000, `${few} tokens`);
    assert.ok(sizes({}, wide, 64).capacity.sequenceTokens < few, "each thread has a slab of every other");
  });

  it("have room for the last page of each sequence on every thread", () => {
    const { pagesPerThread, passTokens, maxRows } = sizes({ blockTokens: 32 });
    assert.equal(pagesPerThread, passTokens / 32 / 2 + maxRows);
    // A pass has at most as many sequences as tokens.
    assert.equal(sizes({ maxSequences: 4096 }).maxRows, 256);
  });

  it("plan for no fewer bytes than a thread's memory has in addition to its weights", async () => {
    const kernels = instantiateKernels(await loadKernels(), createMemory(1));
    for (const weights of ["F32", "F16", "Q8_0", "Q4_0"] as const) {
      const typed = join(folder, `${weights}.gguf`);
      await writeTinyEncoder(typed, { seed: 1, pooling: "mean", contextLength: 2048, width: 256, heads: 4, weights });
      const { graph, table, shape } = await readModel(typed);
      for (const threads of [1, 2, 3, 7]) {
        const spec = specOf(typed, { maxModelLength: null, maxBatchTokens: 10_000 });
        const { capacity, ...rest } = encoderSizes(spec, shape, threads);
        const none = { kvType: 0, inputFloats: 0, adapterRank: 0, mixture: null, maxOutputs: 0 };
        const { blockTokens } = capacity;
        const plan = {
          files: table.files,
          graph,
          shape,
          threads,
          ...rest,
          ...none,
          blockTokens,
          blocksPerSequence: 64,
        };
        const at = layOut(plan, divideGraph(plan), kernels, 0);
        const planned = passBytes(spec, shape, threads) / threads;
        // Bytes from the KV cache on, after the weights. passBytes() counts neither the page list nor the rounding up to a whole
        // WebAssembly page, so both are subtracted.
        const taken = at.wasmPages * 65_536 - at.kv - 65_536 - at.pageListBytes;
        assert.ok(taken <= planned, `${weights}, ${threads} threads: ${taken} bytes of ${planned}`);
      }
    }
  });

  it("affect the choice of engine: a model without room for a pass goes to the other engine", async () => {
    const spec = specOf(path, { threads: 1, blockTokens: 2 ** 22 });
    assert.match((await wasmRefusal(spec)) ?? "", /1 compute threads hold 3\.8 GiB; raise threads/);
  });

  it("add no KV cache to the choice of engine", async () => {
    const spec = specOf(path, { threads: 1, kvBudget: { bytes: 2 ** 40 } });
    assert.equal(await wasmRefusal(spec), null);
  });
});
