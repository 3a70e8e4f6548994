import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Divergence } from "../../bench/parity/divergence.ts";
import { chunkBatchTokens, chunkTokens, compareForced, type Form } from "../../bench/parity/teacher-forcing.ts";
import { textTokens } from "../../bench/parity/text.ts";
import { Batch } from "../../engines/batch.ts";
import type { LoadedModel, ModelSpec } from "../../engines/engine.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { specOf } from "../fixtures/models.ts";
import { type QuantizedType, quantizedModel } from "../fixtures/quantize.ts";
import { type TinyModelOptions, writeTinyModel } from "../fixtures/tiny-gguf.ts";

/** Tokens from..to of a slot's own text. */
interface Feed {
  readonly slot: number;
  readonly from: number;
  readonly to: number;
  /** Which text; the slot's own where it is left out. */
  readonly text?: number;
}

const largestText = 256;

/** The same tokens for the same number, and others for any other. None is a control token. */
function textOf(text: number, vocabSize: number): Int32Array {
  return Int32Array.from({ length: largestText }, (_, i) => 3 + ((i * i * 31 + i * 7 + text * 101) % (vocabSize - 3)));
}

/** One step; a copy of the logits after each row. */
function feed(model: LoadedModel, rows: readonly Feed[]): Float32Array[] {
  const { vocabSize } = model.card;
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  for (const { slot, from, to, text = slot } of rows) {
    batch.addRow(slot, textOf(text, vocabSize), from, to, 1, 0);
  }
  const { logits, logitsRow } = model.step(batch);
  return rows.map((_, row) => {
    const own = logits.slice(logitsRow[row]! * vocabSize, (logitsRow[row]! + 1) * vocabSize);
    assert.ok(own.every(Number.isFinite) && own.some((value) => value !== own[0]), "the logits say nothing");
    return own;
  });
}

/** Feeds `from..to` in chunks that end on multiples of 32; the logits after the last token. */
function feedInChunks(model: LoadedModel, { slot, from, to, text = slot }: Feed): Float32Array {
  let logits: Float32Array = new Float32Array(0);
  for (let at = from; at < to; ) {
    const end = Math.min(to, at - (at % chunkTokens) + chunkTokens);
    [logits = logits] = feed(model, [{ slot, from: at, to: end, text }]);
    at = end;
  }
  return logits;
}

/** Largest difference of two rows of logits, as a share of the range of the first. */
function errorShare(expected: Float32Array, actual: Float32Array): number {
  const range = Math.max(...expected) - Math.min(...expected);
  return expected.reduce((worst, value, i) => Math.max(worst, Math.abs(value - actual[i]!)), 0) / range;
}

describe("the wasm engine beside llama.cpp on the real model", () => {
  const windowTokens = 128;

  async function compare(type: QuantizedType, form: Form, tokenCount: number): Promise<Divergence> {
    const spec = specOf(await quantizedModel(type), {
      maxSequences: chunkTokens,
      maxBatchTokens: chunkBatchTokens,
      maxModelLength: windowTokens,
    });
    // With threads of its own it would be in the way of the other's when they take turns.
    const reference = await llamaEngine.load({ ...spec, kvType: "f16", threads: 1 }, () => {});
    const subject = await wasmEngine.load(spec, () => {});
    try {
      const tokens = textTokens(reference, tokenCount + 1);
      return compareForced({ reference, subject, tokens, windowTokens }, form);
    } finally {
      reference.dispose();
      subject.dispose();
    }
  }

  // Of few tokens, and looser than over the whole text (`bench parity`): where activations are quantised, llama.cpp itself
  // with another KV type or other kernels changes its mind about the likeliest token at 4 of 100 positions.
  const quantised = { perplexity: 0.02, sameTop: 0.92, kl: 0.01 };
  const exact = { perplexity: 0.005, sameTop: 0.985, kl: 0.0005 };
  const cases: readonly (readonly [QuantizedType, Form, number, typeof exact])[] = [
    ["F16", "chunks", 128, exact],
    ["Q8_0", "chunks", 128, quantised],
    ["Q4_0", "decode", 256, quantised],
    ["Q4_1", "decode", 256, quantised],
  ];
  for (const [type, form, tokenCount, bounds] of cases) {
    it(`says of a text what llama.cpp says: ${type}, fed as ${form}`, async () => {
      const divergence = await compare(type, form, tokenCount);
      const report = JSON.stringify(divergence);
      assert.equal(divergence.positions, tokenCount);
      const excess = Math.abs(divergence.perplexity / divergence.referencePerplexity - 1);
      assert.ok(excess <= bounds.perplexity, report);
      assert.ok(divergence.sameTopShare >= bounds.sameTop, report);
      assert.ok(divergence.meanKl <= bounds.kl, report);
    });
  }
});

describe("the wasm engine beside llama.cpp on generated models", () => {
  let directory = "";
  before(() => {
    directory = mkdtempSync(join(tmpdir(), "troupe-wasm-"));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  /** Prompts of several lengths together, one that comes later, and some tokens after each. */
  const steps: readonly (readonly Feed[])[] = [
    [
      { slot: 0, from: 0, to: 1 },
      { slot: 1, from: 0, to: 5 },
      { slot: 2, from: 0, to: 31 },
      { slot: 3, from: 0, to: 32 },
      { slot: 4, from: 0, to: 32 },
    ],
    [
      { slot: 0, from: 1, to: 2 },
      { slot: 4, from: 32, to: 64 },
      { slot: 5, from: 0, to: 32 },
    ],
    ...Array.from({ length: 6 }, (_, i): Feed[] => [
      { slot: 0, from: 2 + i, to: 3 + i },
      { slot: 1, from: 5 + i, to: 6 + i },
      { slot: 2, from: 31 + i, to: 32 + i },
      { slot: 3, from: 32 + i, to: 33 + i },
      { slot: 5, from: 32 + i, to: 33 + i },
    ]),
    [{ slot: 4, from: 64, to: 96 }],
    [{ slot: 4, from: 96, to: 107 }],
    [{ slot: 4, from: 107, to: 108 }],
  ];

  const shapes: Readonly<Record<string, Omit<TinyModelOptions, "seed" | "weights">>> = {
    "heads of 32 with keys of their own": {},
    "four heads of 64 over two of keys, tied output": { width: 256, heads: 4, kvHeads: 2, tied: true, layers: 3 },
    "nine heads of 64 over three of keys": { width: 576, heads: 9, kvHeads: 3, layers: 1 },
    "heads longer than their share of the width": { width: 128, heads: 2, kvHeads: 1, headLength: 128 },
    "linear rope scaling": { ropeScaling: { type: "linear", factor: 4 } },
    "yarn rope scaling": { ropeScaling: { type: "yarn", factor: 4, originalContextLength: 128 } },
    "a factor for each rotated pair": { frequencyFactors: Array.from({ length: 16 }, (_, i) => 1 + i / 4) },
    "a number of rows that is no multiple of 16": { feedForward: 160, vocabularySize: 509 },
  };
  /** Largest error allowed by the type of the KV cache: what an 8-bit mantissa does to it, and what is left without one. */
  const bounds = { auto: 0.003, f32: 0.001 } as const;
  for (const [shape, options] of Object.entries(shapes)) {
    for (const weights of ["F32", "F16"] as const) {
      it(`gives llama.cpp's logits within 0.3 % of their range: ${shape}, ${weights}`, async () => {
        const path = join(directory, `${shape}-${weights}.gguf`.replaceAll(" ", "-"));
        await writeTinyModel(path, { ...options, seed: 11, weights });
        const spec = specOf(path, { maxSequences: 6 });
        const llama = await llamaEngine.load({ ...spec, kvType: "f32" }, () => {});
        const expected = steps.map((rows) => feed(llama, rows));
        llama.dispose();
        for (const [kvType, bound] of Object.entries(bounds) as [keyof typeof bounds, number][]) {
          const wasm = await wasmEngine.load({ ...spec, kvType }, () => {});
          for (const [step, rows] of steps.entries()) {
            for (const [row, logits] of feed(wasm, rows).entries()) {
              const error = errorShare(expected[step]![row]!, logits);
              assert.ok(error <= bound, `KV ${kvType}, step ${step}, row ${row}: ${error}`);
            }
          }
          wasm.dispose();
        }
      });
    }
  }
});

describe("the KV cache of the wasm engine", () => {
  let directory = "";
  let model: LoadedModel;
  const load = (changes: Partial<ModelSpec>) =>
    wasmEngine.load(specOf(join(directory, "tiny.gguf"), { maxModelLength: 128, ...changes }), () => {});
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), "troupe-wasm-kv-"));
    await writeTinyModel(join(directory, "tiny.gguf"), {
      seed: 12,
      weights: "Q8_0",
      width: 256,
      heads: 4,
      kvHeads: 2,
    });
    model = await load({ maxSequences: 32, maxBatchTokens: 32 * chunkTokens });
  });
  after(() => {
    model.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  function releaseAll(): void {
    for (let slot = 0; slot < model.capacity.maxSequences; slot++) model.kv.release(slot);
  }

  /** What `text` gives after `to` tokens when nothing of it has been computed before. */
  function fresh(text: number, to: number): Float32Array {
    const logits = feedInChunks(model, { slot: 31, from: 0, to, text });
    model.kv.release(31);
    return logits;
  }

  for (const kept of [64, 70, 96]) {
    it(`goes on after the first ${kept} tokens of a copy as if they had just been computed, to the bit`, () => {
      feedInChunks(model, { slot: 0, from: 0, to: 100 });
      const saved = model.kv.save(0);
      assert.ok(saved);
      model.kv.release(0);
      model.kv.restore(1, saved, kept);
      const before = kept - (kept % chunkTokens);
      // Where a chunk had been cut, it is cut in the same place for the comparison.
      const expected = () => {
        feedInChunks(model, { slot: 2, from: 0, to: before, text: 0 });
        if (kept > before) feed(model, [{ slot: 2, from: before, to: kept, text: 0 }]);
        return feedInChunks(model, { slot: 2, from: kept, to: 110, text: 0 });
      };
      assert.deepEqual(feedInChunks(model, { slot: 1, from: kept, to: 110, text: 0 }), expected());
      releaseAll();
    });
  }

  it("keeps sequences that share a beginning apart", () => {
    feedInChunks(model, { slot: 0, from: 0, to: 70, text: 5 });
    const saved = model.kv.save(0);
    assert.ok(saved);
    model.kv.restore(1, saved, 64);
    model.kv.restore(2, saved, 70);
    feedInChunks(model, { slot: 1, from: 64, to: 90, text: 6 });
    const own = feedInChunks(model, { slot: 0, from: 70, to: 96, text: 5 });
    const copied = feedInChunks(model, { slot: 2, from: 70, to: 96, text: 5 });
    assert.deepEqual(copied, own);
    feedInChunks(model, { slot: 3, from: 0, to: 70, text: 5 });
    assert.deepEqual(own, feedInChunks(model, { slot: 3, from: 70, to: 96, text: 5 }));
    releaseAll();
  });

  it("gives the room of cancelled sequences to others, time and again", async () => {
    const small = await load({ maxSequences: 3, maxBatchTokens: 3 * chunkTokens });
    const ends = [40, 127, 128];
    const first = ends.map((to, slot) => feedInChunks(small, { slot, from: 0, to }));
    for (let round = 0; round < 10; round++) {
      // In the middle of a prompt, or at its end, in another order each time.
      for (const slot of [0, 1, 2].map((i) => (i + round) % 3)) small.kv.release(slot);
      const again = ends.map((to, i) => feedInChunks(small, { slot: (i + round) % 3, from: 0, to, text: i }));
      assert.deepEqual(again, first);
    }
    small.dispose();
  });

  it("gives a sequence among 32 what it gets alone, to the bit", () => {
    const slots = Array.from({ length: 32 }, (_, slot) => slot);
    const together = [
      feed(
        model,
        slots.map((slot) => ({ slot, from: 0, to: 32 })),
      ),
      feed(
        model,
        slots.map((slot) => ({ slot, from: 32, to: slot % 2 === 0 ? 33 : 64 })),
      ),
      feed(
        model,
        slots.map((slot) => ({ slot, from: slot % 2 === 0 ? 33 : 64, to: slot % 2 === 0 ? 34 : 65 })),
      ),
    ];
    releaseAll();
    for (const slot of [0, 7, 31]) {
      const middle = slot % 2 === 0 ? 33 : 64;
      const alone = [
        feed(model, [{ slot: 3, from: 0, to: 32, text: slot }]),
        feed(model, [{ slot: 3, from: 32, to: middle, text: slot }]),
        feed(model, [{ slot: 3, from: middle, to: middle + 1, text: slot }]),
      ];
      model.kv.release(3);
      assert.deepEqual(
        together.map((step) => step[slot]),
        alone.map(([logits]) => logits),
      );
    }
  });

  it("gives a token fed alone what it gets at the end of a chunk, to the bit", () => {
    const expected = fresh(9, 64);
    feedInChunks(model, { slot: 0, from: 0, to: 63, text: 9 });
    assert.deepEqual(feed(model, [{ slot: 0, from: 63, to: 64, text: 9 }])[0], expected);
    releaseAll();
  });
});
