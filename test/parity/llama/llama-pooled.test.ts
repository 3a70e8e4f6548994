// Pooled outputs of the llama engine, compared with direct calls of llama.cpp's C API.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import koffi from "koffi";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel, ModelSpec, SequencePooling } from "../../../engines/engine.ts";
import { llamaEngine } from "../../../engines/llama/engine.ts";
import { poolingType } from "../../../engines/llama/native/abi.ts";
import { openLibrary } from "../../../engines/llama/native/library.ts";
import { realModel, specOf, tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyEncoder } from "../../fixtures/models/tiny-encoder.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";

interface Row {
  readonly slot: number;
  readonly tokens: Int32Array;
  /** Index of the first token to feed. Earlier tokens must already be in the slot. */
  readonly from?: number;
  readonly pooled?: boolean;
}

/** Feeds rows in one step. Returns for each row its pooled output, or the logits of its last token. */
function feed(model: LoadedModel, ...rows: readonly Row[]): number[][] {
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  for (const [row, { slot, tokens, from = 0, pooled = true }] of rows.entries()) {
    assert.ok(model.kv.reserve(slot, tokens.length));
    batch.addRow(slot, tokens, from, tokens.length, pooled ? 0 : 1, 0);
    batch.wantPooled[row] = pooled ? 1 : 0;
  }
  const { logits, logitsRow, pooled, pooledRow } = model.step(batch);
  const { vocabSize } = model.card;
  const { pooledLength } = model.capabilities;
  return rows.map((row, i) => {
    const [values, index, width] =
      row.pooled === false ? [logits, logitsRow[i]!, vocabSize] : [pooled, pooledRow[i]!, pooledLength];
    assert.equal(row.pooled === false ? pooledRow[i] : logitsRow[i], -1);
    return [...values.subarray(index * width, (index + 1) * width)];
  });
}

/** Returns the pooled output that llama.cpp computes for one sequence in one pass, in a separate context. */
async function pooledByCApi(
  path: string,
  tokens: Int32Array,
  pooling: SequencePooling,
  length: number,
): Promise<number[]> {
  const { functions: f } = await openLibrary(false);
  const modelParams = f.modelDefaultParams();
  modelParams.n_gpu_layers = 0;
  const model = f.modelLoadFromFile(path, modelParams);
  const contextParams = f.contextDefaultParams();
  const sizes = { n_ctx: 512, n_batch: 512, n_ubatch: 512, n_seq_max: 1, n_threads: 1, n_threads_batch: 1 };
  Object.assign(contextParams, { ...sizes, embeddings: true, pooling_type: poolingType[pooling] });
  const context = f.initFromModel(model, contextParams);
  const batch = f.batchInit(512, 0, 1);
  tokens.forEach((token, i) => {
    new Int32Array(koffi.view(batch.token, 512 * 4))[i] = token;
    new Int32Array(koffi.view(batch.pos, 512 * 4))[i] = i;
    new Int32Array(koffi.view(batch.n_seq_id, 512 * 4))[i] = 1;
    new Int32Array(koffi.view(new BigUint64Array(koffi.view(batch.seq_id, 512 * 8))[i]!, 4))[0] = 0;
    new Int8Array(koffi.view(batch.logits, 512))[i] = 1;
  });
  batch.n_tokens = tokens.length;
  assert.equal(f.decode(context, batch), 0);
  const pooled = [...new Float32Array(koffi.view(f.getPooled(context, 0), length * 4))];
  f.batchFree(batch);
  f.free(context);
  f.modelFree(model);
  return pooled;
}

/** Asserts that vectors are equal in direction and length, apart from the effect of a different summation order. */
function assertClose(actual: readonly number[] | undefined, expected: readonly number[]): void {
  assert.equal(actual?.length, expected.length);
  const size = Math.hypot(...expected);
  const distance = Math.hypot(...expected.map((value, i) => value - actual![i]!));
  assert.ok(size > 0 && distance < 1e-3 * size, `${distance} apart, of ${size}`);
}

const times = (vector: readonly number[], factor: number) => vector.map((value) => value * factor);

describe("pooled outputs of a model that generates", () => {
  it("are the sum of the hidden states whose mean llama.cpp gives, on the default model", async () => {
    const { path } = await realModel();
    const model = await llamaEngine.load(specOf(path, { maxSequences: 3, threads: 1 }), () => {});
    const tokens = model.tokenize("The lighthouse keeper looked at the sea. ".repeat(5)).slice(0, 45);
    const { pooledLength } = model.capabilities;
    const mean = await pooledByCApi(path, tokens, "mean", pooledLength);
    const [pooled] = feed(model, { slot: 0, tokens });
    model.dispose();
    assertClose(pooled, times(mean, tokens.length));
  });

  for (const pagedKv of [false, true]) {
    describe(pagedKv ? "in one pool" : "in streams", () => {
      let path = "";
      let model: LoadedModel;
      const text = (seed: number, length: number) =>
        Int32Array.from({ length }, (_, i) => 3 + ((i * i * 7 + i * seed * 31 + seed) % 500));
      before(async () => {
        path = await tinyModel();
        model = await llamaEngine.load(specOf(path, { pagedKv, threads: 1 }), () => {});
      });
      after(() => model.dispose());

      it("are those of each row alone, in a step with rows that need logits", async () => {
        const rows = [text(1, 90), text(2, 5), text(3, 40)];
        const [alone] = feed(model, { slot: 2, tokens: text(4, 20), pooled: false });
        model.kv.release(2);
        const [first, second, logits, third] = feed(
          model,
          { slot: 0, tokens: rows[0]! },
          { slot: 1, tokens: rows[1]! },
          { slot: 2, tokens: text(4, 20), pooled: false },
          { slot: 3, tokens: rows[2]! },
        );
        for (const slot of [0, 1, 2, 3]) model.kv.release(slot);
        assertClose(logits, alone!);
        for (const [i, pooled] of [first, second, third].entries()) {
          const mean = await pooledByCApi(path, rows[i]!, "mean", model.capabilities.pooledLength);
          assertClose(pooled, times(mean, rows[i]!.length));
        }
      });

      it("are summed over the chunks of a sequence", () => {
        const tokens = text(5, 100);
        const [whole] = feed(model, { slot: 0, tokens });
        model.kv.release(0);
        const [head] = feed(model, { slot: 0, tokens: tokens.slice(0, 64) });
        const [tail] = feed(model, { slot: 0, tokens, from: 64 });
        model.kv.release(0);
        assertClose(
          head!.map((value, i) => value + tail![i]!),
          whole!,
        );
      });

      it("leave the same KV in the slot as any row", () => {
        const tokens = text(6, 31);
        feed(model, { slot: 0, tokens: tokens.slice(0, 30) });
        const [after] = feed(model, { slot: 0, tokens, from: 30, pooled: false });
        model.kv.release(0);
        const [expected] = feed(model, { slot: 0, tokens, pooled: false });
        model.kv.release(0);
        assertClose(after, expected!);
      });
    });
  }
});

describe("a generative model whose file names another pooling", () => {
  for (const pooling of ["last", "rank"] as const) {
    it(`returns what llama.cpp returns for the last token of each row (${pooling})`, async () => {
      const directory = mkdtempSync(join(tmpdir(), "troupe-pooling-"));
      const path = join(directory, "tiny.gguf");
      await writeTinyModel(path, { seed: 1, pooling: poolingType[pooling] });
      const model = await llamaEngine.load(specOf(path, { threads: 1 }), () => {});
      const rows = [90, 5, 1].map((length, slot) => ({
        slot,
        tokens: Int32Array.from({ length }, (_, i) => 9 + slot + i),
      }));
      // Without a classifier, llama.cpp's score is the first value of the hidden state, but only in a pass with one
      // sequence. So rows with the pooling `rank` are fed in separate steps.
      const all = pooling === "last" ? feed(model, ...rows) : rows.map((row) => feed(model, row)[0]);
      assert.equal(model.capabilities.pooling, pooling);
      const { pooledLength } = model.capabilities;
      assert.equal(pooledLength, pooling === "rank" ? 1 : 64);
      for (const [i, { tokens }] of rows.entries()) {
        const last = await pooledByCApi(path, tokens, "last", 64);
        assertClose(all[i], last.slice(0, pooledLength));
      }
      model.dispose();
      rmSync(directory, { recursive: true });
    });
  }
});

describe("an encoder", () => {
  let directory = "";
  before(() => {
    directory = mkdtempSync(join(tmpdir(), "troupe-encoder-"));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  async function load(pooling: SequencePooling | null, changes: Partial<ModelSpec> = {}) {
    const path = join(directory, `${pooling}.gguf`);
    await writeTinyEncoder(path, { seed: 2, pooling });
    return {
      path,
      model: await llamaEngine.load(specOf(path, { maxModelLength: null, threads: 1, ...changes }), () => {}),
    };
  }

  const texts = ["the lighthouse keeper", "a cat is on the moon, and the stars?", "bread", "water and bread"];

  for (const pooling of ["mean", "cls", "last", "rank"] as const) {
    it(`gives each sequence of a step what llama.cpp pools by itself (${pooling})`, async () => {
      const { path, model } = await load(pooling);
      const rows = texts.map((text, slot) => ({ slot, tokens: Int32Array.of(2, ...model.tokenize(text), 3) }));
      const all = feed(model, ...rows);
      for (const [i, { tokens }] of rows.entries()) {
        const expected = await pooledByCApi(path, tokens, pooling, model.capabilities.pooledLength);
        assertClose(all[i], pooling === "mean" ? times(expected, tokens.length) : expected);
      }
      assert.notDeepEqual(all[0], all[1]);
      model.dispose();
    });
  }

  it("reports its capabilities", async () => {
    const { model } = await load("rank", { maxBatchTokens: 100 });
    assert.deepEqual(model.capabilities, {
      truncate: false,
      copyPrefix: false,
      saveState: false,
      generates: false,
      pooling: "rank",
      pooledLength: 1,
      wholeSequences: true,
      mixesLengths: true,
      chunkTokens: { least: 1, best: 100 },
      adaptersPerStep: 0,
    });
    assert.equal(model.capacity.sequenceTokens, 100);
    assert.equal(model.kv.reserve(0, 100), true);
    assert.equal(model.kv.reserve(0, 101), false);
    assert.equal(model.kv.save(0), null);
    model.kv.release(0);
    model.dispose();
  });

  it("uses the mean if its file does not specify the pooling", async () => {
    const { model } = await load(null);
    assert.deepEqual([model.capabilities.pooling, model.capabilities.pooledLength], ["mean", 64]);
    model.dispose();
  });

  it("processes a step in as many passes as necessary", async () => {
    const { model } = await load("cls", { maxBatchTokens: 128 });
    const long = Int32Array.from({ length: 100 }, (_, i) => 5 + (i % 90));
    const [first, second] = feed(model, { slot: 0, tokens: long.slice(0, 28) }, { slot: 1, tokens: long });
    const [alone] = feed(model, { slot: 0, tokens: long });
    assertClose(second, alone!);
    assert.notDeepEqual(first, second);
    model.dispose();
  });
});
