import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { before, describe, it } from "node:test";
import koffi from "koffi";
import { jobDefaults, rowHasToken, rowInts } from "../../../actors/messages.ts";
import { StepLoop } from "../../../actors/model/step/step-loop.ts";
import { Batch } from "../../../engines/batch.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { greedySampling } from "../../../engines/generation.ts";
import { llamaEngine, type NativeModel } from "../../../engines/llama/engine.ts";
import { openLibrary } from "../../../engines/llama/native/library.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { realModel, specOf, tinyModel } from "../../fixtures/models/models.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";
import { until } from "../../fixtures/streams.ts";

// Up to this number of rows, llama.cpp's results do not depend on the other rows of the batch.
const exactChunk = 32;

const stories = [
  "Once upon a time there was a lighthouse keeper who",
  "The three laws of thermodynamics, explained simply, are these: first, energy",
  "def fibonacci(n):\n    ",
  "In the year 1969, two astronauts landed on the moon. Their names were Neil Armstrong and Buzz Aldrin, and a third",
  "A recipe for bread needs flour, water, salt and yeast. Mix them and",
];

/** Decodes greedily by calling the C API directly: one sequence, with the prompt in chunks of `chunk` tokens. Returns the tokens. */
async function greedyByCApi(path: string, prompt: Int32Array, count: number, chunk: number): Promise<number[]> {
  const { functions: f } = await openLibrary(false);
  const modelParams = f.modelDefaultParams();
  modelParams.n_gpu_layers = 0;
  const model = f.modelLoadFromFile(path, modelParams);
  const contextParams = f.contextDefaultParams();
  Object.assign(contextParams, { n_ctx: 512, n_batch: 512, n_seq_max: 1, n_threads: 2, n_threads_batch: 2 });
  const context = f.initFromModel(model, contextParams);
  const batch = f.batchInit(512, 0, 1);
  const vocabSize = f.vocabTokenCount(f.modelGetVocab(model));
  const ints = (pointer: unknown) => new Int32Array(koffi.view(pointer, 512 * 4));
  const [token, position, sequences] = [ints(batch.token), ints(batch.pos), ints(batch.n_seq_id)];
  const wanted = new Int8Array(koffi.view(batch.logits, 512));
  const sequenceIds = new BigUint64Array(koffi.view(batch.seq_id, 512 * 8));
  for (const address of sequenceIds) new Int32Array(koffi.view(address, 4))[0] = 0;
  const decode = (tokens: Int32Array, from: number) => {
    tokens.forEach((value, i) => {
      token[i] = value;
      position[i] = from + i;
      sequences[i] = 1;
      wanted[i] = i === tokens.length - 1 ? 1 : 0;
    });
    batch.n_tokens = tokens.length;
    assert.equal(f.decode(context, batch), 0);
    const logits = new Float32Array(koffi.view(f.getLogits(context), vocabSize * 4));
    return logits.reduce((best, value, i) => (value > (logits[best] as number) ? i : best), 0);
  };
  let next = -1;
  for (let at = 0; at < prompt.length; at += chunk) next = decode(prompt.subarray(at, at + chunk), at);
  const made = [next];
  while (made.length < count) made.push(decode(Int32Array.of(made.at(-1)!), prompt.length + made.length - 1));
  f.batchFree(batch);
  f.free(context);
  f.modelFree(model);
  return made;
}

/** Decodes several prompts at once with the step loop, greedily. Returns the tokens. */
function greedyByLoop(model: LoadedModel, prompts: readonly Int32Array[], count: number): number[][] {
  const limits = { ...generousLimits, maxBatchTokens: 512, maxPrefillChunkTokens: exactChunk };
  const loop = new StepLoop(model, { limits, frameIntervalMs: 0 });
  const made = prompts.map((): number[] => []);
  const consumer = {
    send: ({ rows }: { rows: Int32Array }) => {
      for (let at = 0; at < rows.length; at += rowInts) {
        if (rows[at + 2]! & rowHasToken) made[rows[at]!]!.push(rows[at + 1]!);
      }
    },
  };
  const job = {
    maxNewTokens: count,
    ignoreEos: true,
    adapter: 0,
    client: "test",
    sampling: greedySampling,
    choice: 0,
    breakers: new Int32Array(0),
    ...jobDefaults,
  };
  loop.submit(
    consumer,
    prompts.map((prompt, id) => ({ ...job, id, prompt })),
  );
  while (loop.step());
  return made;
}

describe("the llama engine on the default model", () => {
  let path = "";
  let model: NativeModel;
  before(async () => {
    ({ path } = await realModel());
    model = await llamaEngine.load(specOf(path, { maxSequences: 5 }), () => {});
  });

  it("decodes greedily the same tokens as the C API with the same chunk boundaries", async () => {
    const long = model.tokenize(stories.join(" ").repeat(3));
    for (const prompt of [model.tokenize(stories[0]!), long]) {
      const expected = await greedyByCApi(path, prompt, 24, exactChunk);
      assert.deepEqual(greedyByLoop(model, [prompt], 24), [expected]);
    }
  });

  it("gives each of several sequences in one batch the same tokens as alone", () => {
    const prompts = stories.map((text) => model.tokenize(text));
    const alone = prompts.map((prompt) => greedyByLoop(model, [prompt], 20)[0]);
    assert.deepEqual(greedyByLoop(model, prompts, 20), alone);
  });
});

describe("the llama engine on a generated model", () => {
  let path = "";
  before(async () => {
    path = await tinyModel();
  });

  /** Feeds one token to each slot. Returns the most likely next token of each. */
  function feed(model: LoadedModel, rows: readonly { slot: number; tokens: Int32Array; from: number }[]): number[] {
    const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
    for (const { slot, tokens, from } of rows) batch.addRow(slot, tokens, from, tokens.length, 1, 0);
    const { logits, logitsRow } = model.step(batch);
    const { vocabSize } = model.card;
    return rows.map((_, row) => {
      const own = logits.subarray(logitsRow[row]! * vocabSize, (logitsRow[row]! + 1) * vocabSize);
      return own.reduce((best, value, i) => (value > own[best]! ? i : best), 0);
    });
  }

  /** Decodes `steps` tokens in each slot. The slots in `gone` are released after the first step. */
  function decodeWithGaps(model: LoadedModel, slots: readonly number[], gone: readonly number[], steps: number) {
    const sequences = new Map(slots.map((slot) => [slot, [5 + slot]]));
    for (let step = 0; step < steps; step++) {
      const live = [...sequences];
      const next = feed(
        model,
        live.map(([slot, tokens]) => ({ slot, tokens: Int32Array.from(tokens), from: tokens.length - 1 })),
      );
      live.forEach(([, tokens], i) => {
        tokens.push(next[i]!);
      });
      if (step > 0) continue;
      for (const slot of gone) {
        model.kv.release(slot);
        sequences.delete(slot);
      }
    }
    for (const slot of sequences.keys()) model.kv.release(slot);
    return sequences;
  }

  it("keeps every sequence's text correct while it fills gaps and moves sequences together", async () => {
    const model = await llamaEngine.load(specOf(path, { maxSequences: 8, maxModelLength: 256 }), () => {});
    const slots = [0, 1, 2, 3, 4, 5, 6, 7];
    const whole = decodeWithGaps(model, slots, [], 12);
    const gone = [0, 2, 3, 6];
    const gapped = decodeWithGaps(model, slots, gone, 12);
    for (const [slot, tokens] of gapped) assert.deepEqual(tokens, whole.get(slot), `slot ${slot}`);
    assert.equal(gapped.size, 4);
    model.dispose();
  });

  it("does not disturb a sequence that pauses between two that continue", async () => {
    const model = await llamaEngine.load(specOf(path, { maxSequences: 3, maxModelLength: 256 }), () => {});
    const run = (pausedFrom: number, pausedTo: number) => {
      const sequences = [[5], [6], [7]];
      for (let step = 0; step < 20; step++) {
        const rows = sequences.flatMap((tokens, slot) =>
          slot === 1 && step >= pausedFrom && step < pausedTo
            ? []
            : [{ slot, tokens: Int32Array.from(tokens), from: tokens.length - 1 }],
        );
        const next = feed(model, rows);
        rows.forEach(({ slot }, i) => {
          sequences[slot]!.push(next[i]!);
        });
      }
      for (const slot of [0, 1, 2]) model.kv.release(slot);
      return sequences;
    };
    const through = run(0, 0);
    const paused = run(4, 10);
    assert.deepEqual(paused[0], through[0]);
    assert.deepEqual(paused[1], through[1]!.slice(0, paused[1]!.length));
    model.dispose();
  });

  it("stops a running forward pass when the abort flag is set, and reports it", async () => {
    const abortFlag = new SharedArrayBuffer(8);
    const model = await llamaEngine.load(specOf(path, { abortFlag }), () => {});
    new Uint8Array(abortFlag)[0] = 1;
    assert.throws(
      () => feed(model, [{ slot: 0, tokens: Int32Array.of(5), from: 0 }]),
      (error) => error instanceof ServerError && error.code === "model_failed" && /aborted/.test(error.message),
    );
    model.dispose();
  });

  it("reports progress while it loads and describes what it has loaded", async () => {
    const fractions: number[] = [];
    const model = await llamaEngine.load(specOf(path), (fraction) => fractions.push(fraction));
    assert.ok(fractions.length > 1 && fractions.at(-1) === 1);
    assert.equal(model.card.engine, "llama.cpp v0.5.0");
    assert.ok(model.tokens.endOfGeneration.length > 0);
    assert.equal(model.capacity.sequenceTokens, 512);
    model.dispose();
  });

  it("refuses a file that is not a model with llama.cpp's own reason", async () => {
    await assert.rejects(
      llamaEngine.load(specOf(import.meta.filename), () => {}),
      (error: unknown) => {
        assert.ok(error instanceof ServerError);
        assert.equal(error.code, "model_file_invalid");
        assert.match(error.message, /magic|GGUF/i);
        return true;
      },
    );
  });

  it("refuses more sequences than llama.cpp has ids for, naming the key", async () => {
    await assert.rejects(
      llamaEngine.load(specOf(path, { maxSequences: 257 }), () => {}),
      (error: unknown) => error instanceof ServerError && error.param === "max_seqs" && /257.*256/.test(error.message),
    );
  });

  it("refuses a KV budget that holds no context, naming the key", async () => {
    await assert.rejects(
      llamaEngine.load(specOf(path, { kvBudget: { tokens: 100 } }), () => {}),
      (error: unknown) =>
        error instanceof ServerError && error.param === "kv_cache" && /100 tokens/.test(error.message),
    );
  });
});

describe("the threads of a llama.cpp model", {
  skip: process.platform !== "linux" && "threads are counted on Linux",
}, () => {
  const threadIds = () => new Set(readdirSync("/proc/self/task"));

  it("are created when it is loaded, used for all its passes, and end with it", async () => {
    const path = await tinyModel();
    await openLibrary(false);
    const before = threadIds();
    const model = await llamaEngine.load(specOf(path, { threads: 3, maxSequences: 1 }), () => {});
    const loaded = threadIds();
    assert.equal([...loaded].filter((id) => !before.has(id)).length, 2, "the calling thread is the third");
    const batch = new Batch(1, 8);
    for (let position = 0; position < 8; position++) {
      batch.clear();
      assert.ok(model.kv.reserve(0, position + 1));
      batch.addRow(
        0,
        Int32Array.from({ length: 8 }, (_, i) => i + 300),
        position,
        position + 1,
        1,
        0,
      );
      model.step(batch);
      assert.deepEqual(threadIds(), loaded);
    }
    model.dispose();
    // The system still lists a thread for a moment after it has exited.
    await until(() => threadIds().size === before.size, "the threads to be gone");
  });
});
