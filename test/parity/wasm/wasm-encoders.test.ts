// Pooled outputs of the wasm engine compared with those of llama.cpp, for encoders of every architecture and pooling, and for
// generative models whose files specify a pooling.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { Engine, LoadedModel, ModelSpec } from "../../../engines/engine.ts";
import { llamaEngine } from "../../../engines/llama/engine.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { specOf } from "../../fixtures/models/models.ts";
import {
  type EncoderArchitecture,
  type TinyEncoderOptions,
  writeTinyEncoder,
} from "../../fixtures/models/tiny-encoder.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";
import { rerankerScores, writeTinyReranker } from "../../fixtures/models/tiny-reranker.ts";

const sentenceCount = 200;
const leastCosine = 0.999;
const [clsToken, sepToken] = [2, 3];

/** Returns tokenized texts. Their lengths range from one token to the whole context; most texts are short. */
function sentences(tokenize: (text: string) => Int32Array, contextLength: number): Int32Array[] {
  let state = 1;
  const below = (count: number) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % count;
  };
  const words = ["the sea", "lighthouse keeper", "cat?", "42 moons,", "breadly", "and", "starlight is on water.", "x"];
  return Array.from({ length: sentenceCount }, (_, i) => {
    const length =
      i < 4 ? [1, 2, contextLength, contextLength - 1][i]! : 3 + below(i % 10 === 0 ? contextLength - 3 : 40);
    const text = Array.from({ length }, () => words[below(words.length)]!).join(" ");
    return Int32Array.of(clsToken, ...tokenize(text).subarray(0, Math.max(length - 2, 0)), sepToken).slice(0, length);
  });
}

/** Returns the pooled output of each sentence. Each step contains as many sentences as fit. */
function poolAll(model: LoadedModel, all: readonly Int32Array[]): Float32Array[] {
  const { maxSequences, maxBatchTokens } = model.capacity;
  const { pooledLength } = model.capabilities;
  const batch = new Batch(maxSequences, maxBatchTokens);
  const outputs: Float32Array[] = [];
  const flush = () => {
    const { pooled, pooledRow } = model.step(batch);
    for (let row = 0; row < batch.rowCount; row++) {
      outputs.push(pooled.slice(pooledRow[row]! * pooledLength, (pooledRow[row]! + 1) * pooledLength));
      model.kv.release(batch.slot[row]!);
    }
    batch.clear();
  };
  for (const tokens of all) {
    if (batch.rowCount === maxSequences || batch.tokenCount + tokens.length > maxBatchTokens) flush();
    const slot = batch.rowCount;
    assert.ok(model.kv.reserve(slot, tokens.length));
    batch.wantPooled[batch.addRow(slot, tokens, 0, tokens.length, 0, 0)] = 1;
  }
  flush();
  return outputs;
}

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, value, i) => sum + value * y[i]!, 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

/** Asserts that vectors have the same direction and length. */
function assertSameVectors(actual: readonly Float32Array[], expected: readonly Float32Array[]): void {
  assert.equal(actual.length, expected.length);
  for (const [i, vector] of actual.entries()) {
    assert.ok(cosine(vector, expected[i]!) >= leastCosine, `sentence ${i}: cosine ${cosine(vector, expected[i]!)}`);
    const stretch = Math.hypot(...vector) / Math.hypot(...expected[i]!);
    assert.ok(Math.abs(stretch - 1) < 0.01, `sentence ${i}: ${stretch} times as long`);
  }
  assert.ok(Math.min(...actual.slice(1).map((vector) => cosine(vector, actual[0]!))) < 0.95, "all are the same");
}

/** Asserts that scores and their differences agree. `tolerance`: maximum error as a fraction of the largest score. */
function assertSameScores(actual: readonly Float32Array[], expected: readonly Float32Array[], tolerance: number): void {
  const largest = Math.max(...expected.map((scores) => Math.max(...scores.map(Math.abs))));
  const errors = actual.map((scores, i) => Math.max(...scores.map((score, k) => Math.abs(score - expected[i]![k]!))));
  assert.equal(actual.length, expected.length);
  assert.ok(Math.max(...errors) <= tolerance * largest, `${Math.max(...errors)} apart, of ${largest}`);
  const correlation = cosine(centred(actual), centred(expected));
  assert.ok(correlation >= 0.998, `correlated by ${correlation}`);
}

/** Returns the first score of each text, minus the mean over all texts. */
function centred(scores: readonly Float32Array[]): Float32Array {
  const mean = scores.reduce((sum, [score]) => sum + score!, 0) / scores.length;
  return Float32Array.from(scores, ([score]) => score! - mean);
}

describe("pooled outputs of the wasm engine against llama.cpp's", () => {
  let directory = "";
  before(() => {
    directory = mkdtempSync(join(tmpdir(), "troupe-encoders-"));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  async function withModel<T>(engine: Engine, spec: ModelSpec, use: (model: LoadedModel) => T): Promise<T> {
    const model = await engine.load(spec, () => {});
    try {
      return use(model);
    } finally {
      model.dispose();
    }
  }

  /** Runs both engines on the same sentences, wasm with `threads` threads. Returns the sentences and the outputs of both. */
  async function compare(path: string, threads: number, changes: Partial<ModelSpec> = {}) {
    const spec = specOf(path, { maxSequences: 12, threads: 1, ...changes });
    const { expected, all, declared } = await withModel(llamaEngine, spec, (model) => {
      const { capabilities, capacity } = model;
      const all = sentences((text) => model.tokenize!(text), capacity.sequenceTokens);
      return { all, expected: poolAll(model, all), declared: { capabilities, tokens: capacity.sequenceTokens } };
    });
    const { actual, own } = await withModel(wasmEngine, { ...spec, threads }, (model) => {
      const { capabilities, capacity } = model;
      return { actual: poolAll(model, all), own: { capabilities, tokens: capacity.sequenceTokens } };
    });
    return { actual, expected, declared, own };
  }

  async function write(options: Omit<TinyEncoderOptions, "seed">): Promise<string> {
    const path = join(directory, `${Object.values(options).join("-")}.gguf`);
    await writeTinyEncoder(path, { seed: 3, layers: 4, ...options });
    return path;
  }

  const architectures: readonly EncoderArchitecture[] = ["bert", "nomic-bert", "modern-bert"];
  for (const architecture of architectures) {
    for (const [pooling, weights, threads] of [
      ["mean", "F16", 1],
      ["mean", "Q8_0", 1],
      ["cls", "F16", 2],
      ["last", "F16", 1],
    ] as const) {
      it(`agree on ${sentenceCount} sentences: ${architecture} by ${pooling}, ${weights}, ${threads} threads`, async () => {
        const { actual, expected, declared, own } = await compare(
          await write({ architecture, pooling, weights }),
          threads,
        );
        assertSameVectors(actual, expected);
        assert.deepEqual(own, declared);
      });
    }
  }

  for (const architecture of ["bert", "modern-bert"] as const) {
    for (const [weights, threads, scores, tolerance] of [
      ["F32", 1, 1, 1e-3],
      // The tolerances below are larger, because llama.cpp rounds the inputs of products to the type of the weights, or to 8 bits.
      ["F16", 2, 3, 2e-3],
      ["Q8_0", 1, 1, 0.1],
    ] as const) {
      it(`agree on scores: ${architecture}, ${scores} per text, ${weights}, ${threads} threads`, async () => {
        const path = await write({ architecture, pooling: "rank", weights, scores });
        const { actual, expected, declared, own } = await compare(path, threads);
        assertSameScores(actual, expected, tolerance);
        assert.deepEqual(own, declared);
        assert.equal(own.capabilities.pooledLength, scores);
      });
    }
  }

  it("agree if queries, keys and values are one matrix with a bias, and the file names no pooling", async () => {
    const path = await write({ architecture: "bert", pooling: null, weights: "F32", isFused: true });
    const { actual, expected, declared, own } = await compare(path, 1);
    assertSameVectors(actual, expected);
    assert.deepEqual(own, declared);
    assert.equal(own.capabilities.pooling, "mean");
  });

  it("agree on a modern-bert with another activation, and on texts longer than passes of several sequences", async () => {
    const options = { architecture: "modern-bert", pooling: "cls", activation: "silu", contextLength: 512 } as const;
    const { actual, expected, own } = await compare(await write({ ...options, weights: "F16", window: 33 }), 2);
    assertSameVectors(actual, expected);
    assert.equal(own.tokens, 512);
  });

  it("limit the length of a text to that of the step, the settings and the model", async () => {
    const path = await write({ architecture: "bert", pooling: "mean" });
    for (const [changes, tokens] of [
      [{}, 128],
      [{ maxBatchTokens: 100 }, 100],
      [{ maxModelLength: 50 }, 50],
    ] as const) {
      await withModel(wasmEngine, specOf(path, { threads: 1, ...changes }), ({ capacity, kv }) => {
        assert.equal(capacity.sequenceTokens, tokens);
        assert.deepEqual([kv.reserve(0, tokens), kv.reserve(0, tokens + 1)], [true, false]);
        assert.equal(kv.save(0), null);
      });
    }
  });

  it("are of the last token if the file of a generating model says so, in steps of several passes", async () => {
    const path = join(directory, "last.gguf");
    await writeTinyModel(path, { seed: 4, pooling: 3, weights: "F16", contextLength: 256 });
    const { actual, expected, own } = await compare(path, 1, { kvType: "f32" });
    assertSameVectors(actual, expected);
    assert.equal(own.capabilities.pooling, "last");
  });

  it("are scores of the last token if a generating model has a head for them", async () => {
    const path = join(directory, "reranker.gguf");
    await writeTinyReranker(path, 5);
    const { actual, expected, declared, own } = await compare(path, 1, { kvType: "f32" });
    // llama.cpp adds up attention in 16 bits, so its error grows with the number of tokens.
    assertSameScores(actual, expected, 5e-3);
    assert.deepEqual([own.capabilities.pooling, own.capabilities.pooledLength], ["rank", rerankerScores]);
    assert.equal(declared.capabilities.pooledLength, rerankerScores);
  });

  it("are absent if the file of a generating model names the first token, which sees no other", async () => {
    const path = join(directory, "first.gguf");
    await writeTinyModel(path, { seed: 4, pooling: 2 });
    const { pooling, pooledLength } = await withModel(wasmEngine, specOf(path, { threads: 1 }), (m) => m.capabilities);
    assert.deepEqual([pooling, pooledLength], [null, 0]);
  });
});
