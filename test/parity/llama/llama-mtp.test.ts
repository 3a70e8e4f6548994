// MTP heads (prediction heads) in llama.cpp, on a generated model. The output must equal the output without heads, for
// all drafts and for all ways in which a slot gets its tokens. The drafts must equal those of a head that was fed the
// whole text at once.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { StepLoop } from "../../../actors/model/step/step-loop.ts";
import { Batch } from "../../../engines/batch.ts";
import type { StepTimeModel } from "../../../engines/decoding/scheduler/step-time-model.ts";
import type { SpeculationOptions } from "../../../engines/decoding/speculation/options.ts";
import { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import type { ModelSpec, MtpSpec } from "../../../engines/engine.ts";
import { greedySampling, type Sampling } from "../../../engines/generation.ts";
import { llamaEngine } from "../../../engines/llama/engine.ts";
import { LlamaModel } from "../../../engines/llama/model.ts";
import type { LlamaHeads } from "../../../engines/llama/mtp/mtp.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { specOf, tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyAssisted } from "../../fixtures/models/tiny-assistant.ts";
import { type TinyMtpOptions, writeTinyMtp } from "../../fixtures/models/tiny-mtp.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";
import { lookupOnly } from "../../fixtures/speculative-decoding.ts";
import { Frames, job } from "../../unit/actors/generation/rig.ts";

const directory = mkdtempSync(join(tmpdir(), "troupe-mtp-"));
after(() => rmSync(directory, { recursive: true, force: true }));

const ownHeads: MtpSpec = { path: null };

async function write(name: string, options: Partial<TinyMtpOptions> = {}): Promise<string> {
  const path = join(directory, `${name}.gguf`);
  await writeTinyMtp(path, { seed: 5, ...options });
  return path;
}

async function load(path: string, mtp: MtpSpec | null = ownHeads, changes: Partial<ModelSpec> = {}) {
  const model = await llamaEngine.load(specOf(path, { threads: 1, mtp, ...changes }), () => {});
  assert.ok(model instanceof LlamaModel);
  return model;
}

/** Simulated step times: additional tokens cost almost nothing, so drafting the maximum is always fastest. */
const wideSteps = { decodeMs: (tokens: number) => 20 + 0.01 * tokens, mostDecodeTokens: 1000 } as StepTimeModel;

interface Run {
  readonly prompts: readonly (readonly number[])[];
  readonly maxNewTokens: number;
  readonly sampling?: Partial<Sampling>;
  readonly drafting?: Partial<SpeculationOptions> | null;
  readonly prefixCacheEntries?: number;
}

/** Runs the step loop with prompts that arrive one after another, each while the earlier ones decode. Returns the generated tokens. */
function generated(model: LlamaModel, { prompts, maxNewTokens, sampling, drafting = {}, prefixCacheEntries = 0 }: Run) {
  const options = { ...lookupOnly, promptLookup: false, mtpTokens: 4, ...drafting };
  const loop = new StepLoop(model, {
    limits: { ...generousLimits, prefixCacheEntries, maxBatchTokens: model.capacity.maxBatchTokens },
    frameIntervalMs: 0,
    createSpeculation: (_, choose) =>
      drafting && Speculation.create({ model, draft: null, options, cost: wideSteps, choose, now: () => 0 }),
  });
  const frames = new Frames();
  prompts.forEach((prompt, id) => {
    const options = { prompt: Int32Array.from(prompt), maxNewTokens, ignoreEos: true };
    loop.submit(frames, [job(id, { ...options, sampling: { ...greedySampling, seed: id, ...sampling } })]);
    loop.step();
  });
  while (loop.step());
  const { speculation, steps, memoryPreemptions } = loop.snapshot();
  for (; loop.prefixes.evictLatest(); );
  return {
    texts: prompts.map((_, id) => frames.rows.filter((row) => row.id === id).map(({ token }) => token)),
    share: speculation.accepted / speculation.proposed,
    proposed: speculation.proposed,
    preemptions: memoryPreemptions,
    steps,
  };
}

function promptsOf(count: number, length: number): number[][] {
  return Array.from({ length: count }, (_, p) =>
    Array.from({ length }, (_, i) => 3 + ((i * i * 7 + i * 31 + p * 11) % 317)),
  );
}

describe("a model with prediction heads", () => {
  it("generates the same text as without them, in fewer steps if they are mostly right", async () => {
    const model = await load(await write("agreeing"));
    for (const count of [1, 4]) {
      const run = { prompts: promptsOf(count, 20), maxNewTokens: 60 };
      const plain = generated(model, { ...run, drafting: null });
      const drafted = generated(model, run);
      assert.deepEqual(drafted.texts, plain.texts);
      assert.ok(drafted.share > 0.6, `${drafted.share} of ${drafted.proposed} with ${count}`);
      assert.ok(drafted.steps < 0.6 * plain.steps, `${drafted.steps} steps of ${plain.steps}`);
    }
    model.dispose();
  });

  it("generates the same text as without them if they are mostly wrong, or sometimes right", async () => {
    const wrong = await load(await write("wrong", { wrongHead: true }));
    const unsure = await load(await write("unsure", { contextWeight: 3, headContextWeight: 0.3, seed: 6 }));
    for (const [model, least, most] of [
      [wrong, 0, 0.1],
      [unsure, 0.1, 0.9],
    ] as const) {
      const run = { prompts: promptsOf(3, 40), maxNewTokens: 60 };
      const plain = generated(model, { ...run, drafting: null });
      const drafted = generated(model, run);
      assert.deepEqual(drafted.texts, plain.texts);
      const { share, proposed } = drafted;
      assert.ok(proposed > 20 && share >= least && share <= most, `${share} of ${proposed}`);
      model.dispose();
    }
  });

  it("generates the same text as without them in reused slots, after cached prefixes and in long prompts", async () => {
    const model = await load(await write("reused", { contextWeight: 0.4, headContextWeight: 0.3 }));
    const [shared = []] = promptsOf(1, 200);
    const prompts = promptsOf(12, 30).map((own) => [...shared, ...own]);
    const run = { prompts, maxNewTokens: 25, prefixCacheEntries: 4 };
    const plain = generated(model, { ...run, drafting: null });
    const drafted = generated(model, run);
    assert.deepEqual(drafted.texts, plain.texts);
    assert.ok(drafted.share > 0.1, `${drafted.share} of ${drafted.proposed}`);
    assert.equal(model.kv.freeBlocks, model.capacity.kvBlocks);
    model.dispose();
  });

  it("generates the same text as without them if the KV cache is too small for all sequences", async () => {
    const path = await write("crowded", { contextWeight: 0.4 });
    const model = await load(path, ownHeads, { kvBudget: { tokens: 512 }, maxModelLength: 256, blockTokens: 4 });
    const run = { prompts: promptsOf(7, 90), maxNewTokens: 130, prefixCacheEntries: 4 };
    const plain = generated(model, { ...run, drafting: null });
    const drafted = generated(model, run);
    assert.deepEqual(drafted.texts, plain.texts);
    assert.ok(drafted.preemptions > 0 && drafted.share > 0.3, `${drafted.preemptions} preemptions, ${drafted.share}`);
    model.dispose();
  });

  it("samples the same text as without them, for each seed; sampled drafts are right more often", async () => {
    const model = await load(await write("drawn", { certainty: 0.1 }));
    const run = { prompts: promptsOf(4, 10), maxNewTokens: 80, sampling: { temperature: 1, topP: 0.95 } };
    const plain = generated(model, { ...run, drafting: null });
    const greedy = generated(model, { ...run, drafting: { mtpSampling: "greedy" } });
    const drawn = generated(model, { ...run, drafting: { mtpSampling: "probabilistic" } });
    assert.deepEqual(greedy.texts, plain.texts);
    assert.deepEqual(drawn.texts, plain.texts);
    assert.ok(drawn.share > 1.2 * greedy.share, `${drawn.share} drawn, ${greedy.share} greedy`);
    model.dispose();
  });

  it("is rejected without heads, with an assistant of another model, and without a pool", async () => {
    const none = await write("none", { heads: 0 });
    const whole = await write("whole");
    const other = await write("narrow", { width: 32 });
    const llama = await tinyModel();
    const refusals: [string, MtpSpec, Partial<ModelSpec>, RegExp][] = [
      [none, ownHeads, {}, /^mtp_n_predict expects a model with MTP heads.*none\.gguf.*no MTP heads/],
      [llama, ownHeads, {}, /^mtp_n_predict expects .*\(llama\) has no MTP heads/],
      [none, { path: llama }, {}, /^mtp_model expects .*\(llama\) is not an assistant of .*\(glm4moe\)/],
      [llama, { path: whole }, {}, /^mtp_model expects .*\(glm4moe\) is not an assistant of .*\(llama\)/],
      [
        none,
        { path: other },
        {},
        /^mtp_model expects .*it has states of 32 floats and 320 tokens, expected 64 and 320/,
      ],
      [whole, ownHeads, { pagedKv: false }, /paged_attn/],
    ];
    for (const [path, heads, changes, message] of refusals) {
      await assert.rejects(load(path, heads, changes), (error: ServerError) => {
        assert.equal(error.code, "config_invalid");
        assert.match(error.message, message);
        return true;
      });
    }
  });
});

describe("an assistant in a file of its own", () => {
  it("drafts for the model it was made for", async () => {
    const model = await load(await write("alone", { heads: 0 }), {
      path: await write("assistant", { headOnly: true }),
    });
    const run = { prompts: promptsOf(2, 20), maxNewTokens: 40 };
    const plain = generated(model, { ...run, drafting: null });
    const drafted = generated(model, run);
    assert.deepEqual(drafted.texts, plain.texts);
    assert.ok(drafted.share > 0.6, `${drafted.share} of ${drafted.proposed}`);
    model.dispose();
  });
});

describe("an assistant that reads its model's KV cache", () => {
  it("drafts for a model with windows without changing its text", async () => {
    const [path, assistant] = [join(directory, "windows.gguf"), join(directory, "reader.gguf")];
    await writeTinyAssisted(path, assistant);
    const model = await load(path, { path: assistant });
    const run = { prompts: promptsOf(4, 60), maxNewTokens: 60 };
    const alone = await load(path, null);
    const plain = generated(alone, { ...run, drafting: null });
    alone.dispose();
    for (let round = 0; round < 2; round++) {
      const drafted = generated(model, { ...run, prefixCacheEntries: 4 });
      assert.deepEqual(drafted.texts, plain.texts);
      assert.ok(drafted.share > 0.4, `${drafted.share} of ${drafted.proposed}`);
    }
    model.dispose();
  });
});

describe("the tokens that prediction heads have read", () => {
  const vocabSize = 320;
  /**
   * Maximum difference of logits that are considered equal. A different summation order changes only the last bits,
   * but these differences add up over three passes. Logits of different texts differ by several units.
   */
  const tolerance = 5e-3;
  const [text = []] = promptsOf(1, 400);
  const tokens = Int32Array.from(text);
  let model: LlamaModel;
  let heads: LlamaHeads;

  before(async () => {
    const path = await write("context", { contextWeight: 0.6, headContextWeight: 0.8, certainty: 0.3 });
    model = await load(path);
    assert.ok(model.mtp);
    heads = model.mtp;
  });
  after(() => model.dispose());

  /** Feeds the text's tokens from index `from` up to, but not including, `to`, followed by the draft tokens `drafts`. */
  function feed(slot: number, from: number, to: number, drafts: readonly number[] = []): void {
    const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
    assert.ok(model.kv.reserve(slot, to + drafts.length));
    batch.addRow(slot, tokens, from, to, 1, 0);
    if (drafts.length > 0) batch.extendRow(Int32Array.from(drafts), drafts.length);
    model.step(batch);
  }

  function target(slot: number, total: number) {
    return { slot, total, tokens, draft: new Int32Array(4), draftCount: 0 };
  }

  /** Returns the drafts after the first `total` tokens of the text, and the logits from which they were chosen. */
  function proposed(slot: number, total: number, depth = 3): { draft: number[]; logits: number[] } {
    const one = target(slot, total);
    const logits: number[] = [];
    heads.propose([one], Int32Array.of(depth), (_, all, row) => {
      const own = all.subarray(row * vocabSize, (row + 1) * vocabSize);
      logits.push(...own);
      return own.indexOf(Math.max(...own));
    });
    return { draft: [...one.draft.subarray(0, one.draftCount)], logits };
  }

  /** Feeds the first `total` tokens in one call to a new slot. Returns the drafts for the next tokens. */
  function afresh(total: number) {
    const slot = model.capacity.maxSequences - 1;
    feed(slot, 0, total - 1);
    const found = proposed(slot, total);
    model.kv.release(slot);
    return found;
  }

  function assertAlike(found: { draft: number[]; logits: number[] }, total: number): void {
    const expected = afresh(total);
    assert.deepEqual(found.draft, expected.draft);
    assert.equal(found.logits.length, 3 * vocabSize);
    const apart = distance(found, expected);
    assert.ok(apart < tolerance, `${apart}`);
  }

  function distance(one: { logits: number[] }, other: { logits: number[] }): number {
    return Math.max(...one.logits.map((logit, i) => Math.abs(logit - other.logits[i]!)));
  }

  it("affect what they draft", () => {
    feed(0, 0, 90);
    heads.feeder.release(0);
    feed(0, 90, 99);
    const apart = distance(proposed(0, 100), afresh(100));
    assert.ok(apart > 100 * tolerance, `${apart}`);
    model.kv.release(0);
  });

  it("have the same effect in whatever steps they were fed", () => {
    for (const lengths of [[1, 2, 3, 93], [33, 33, 33], Array.from({ length: 99 }, () => 1), [64, 32, 3]]) {
      let from = 0;
      for (const length of lengths) {
        feed(0, from, from + length);
        from += length;
      }
      assertAlike(proposed(0, 100), 100);
      model.kv.release(0);
    }
  });

  it("do not include drafts that were wrong, or that nobody verified", () => {
    feed(0, 0, 60);
    for (let total = 61; total < 100; total++) {
      const { draft } = proposed(0, total);
      assert.equal(draft.length, 3);
      if (total % 3 === 0) proposed(0, total);
      feed(0, total - 1, total, draft);
    }
    assertAlike(proposed(0, 100), 100);
    model.kv.release(0);
  });

  it("have the same effect whatever else is in the step, for any number of waiting tokens", () => {
    feed(0, 0, 70);
    feed(1, 0, 90);
    for (let total = 71; total < 99; total++) feed(0, total - 1, total);
    feed(1, 90, 97);
    const both = [target(0, 99), target(1, 98)];
    const seen: number[][] = [[], []];
    heads.propose(both, Int32Array.of(2, 3), (one, all, row) => {
      const own = all.subarray(row * vocabSize, (row + 1) * vocabSize);
      seen[one.slot]!.push(...own);
      return own.indexOf(Math.max(...own));
    });
    assert.deepEqual(
      both.map(({ draftCount }) => draftCount),
      [2, 3],
    );
    assertAlike({ draft: [...both[1]!.draft.subarray(0, 3)], logits: seen[1]! }, 98);
    assert.deepEqual([...both[0]!.draft.subarray(0, 2)], afresh(99).draft.slice(0, 2));
    model.kv.release(0);
    model.kv.release(1);
  });

  it("are copied, saved and restored with prefixes, except for the one state that is not kept", () => {
    feed(0, 0, 80);
    model.kv.copyPrefix(0, 1, 60);
    const saved = model.kv.save(0);
    assert.ok(saved);
    model.kv.release(0);
    model.kv.restore(2, saved, 60);
    model.kv.drop(saved);
    const expected = afresh(100);
    for (const slot of [1, 2]) {
      assert.equal(heads.follows(slot, 62), false);
      feed(slot, 60, 99);
      const apart = distance(proposed(slot, 100), expected);
      assert.ok(apart > 0 && apart < 0.5, `${apart}`);
      model.kv.release(slot);
    }
  });

  it("may begin anywhere: an exported copy is imported without them", () => {
    feed(0, 0, 80);
    const saved = model.kv.save(0);
    assert.ok(saved);
    const bytes = model.kv.export(saved);
    model.kv.drop(saved);
    model.kv.release(0);
    const imported = model.kv.import(bytes, 80);
    assert.ok(imported);
    model.kv.restore(0, imported, 80);
    assert.equal(heads.follows(0, 81), false);
    assert.equal(proposed(0, 81).draft.length, 0);
    feed(0, 80, 81);
    assert.equal(proposed(0, 82).draft.length, 3);
    model.kv.drop(imported);
    model.kv.release(0);
  });
});
