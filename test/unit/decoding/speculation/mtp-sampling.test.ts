// MTP sampling: drafts that MTP heads sample. The resulting text must have the distribution of the model, not that of the
// heads.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { Batch } from "../../../../engines/batch.ts";
import { Sampler } from "../../../../engines/decoding/sampler/sampler.ts";
import type { StepTimeModel } from "../../../../engines/decoding/scheduler/step-time-model.ts";
import { Speculation } from "../../../../engines/decoding/speculation/speculation.ts";
import type { MtpHeads } from "../../../../engines/engine.ts";
import { greedySampling } from "../../../../engines/generation.ts";
import { createScriptedModel } from "../../../fixtures/fakes/scripted-model.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { lookupOnly } from "../../../fixtures/speculative-decoding.ts";
import { Frames, job } from "../../actors/generation/rig.ts";

const vocabSize = 5;
/** Probability of each next token, by the last token: `truth` for the model, `belief` for the heads. */
const truth = [
  [0.5, 0.2, 0.1, 0.1, 0.1],
  [0.05, 0.6, 0.2, 0.1, 0.05],
  [0.3, 0.3, 0.2, 0.1, 0.1],
  [0.1, 0.1, 0.1, 0.3, 0.4],
  [0.2, 0.2, 0.2, 0.2, 0.2],
];
const belief = [
  [0.4, 0.3, 0.1, 0.1, 0.1],
  [0.1, 0.4, 0.3, 0.1, 0.1],
  [0.2, 0.3, 0.2, 0.2, 0.1],
  [0.1, 0.2, 0.1, 0.4, 0.2],
  [0.1, 0.2, 0.4, 0.2, 0.1],
];

const logitsBehind = (chances: readonly number[][], token: number) => Float32Array.from(chances[token]!, Math.log);

const heads: MtpHeads = {
  trainedTokens: 3,
  follows: () => true,
  propose: (targets, depths, choose) => {
    targets.forEach((target, i) => {
      target.draftCount = 0;
      let last = target.tokens[target.total - 1]!;
      while (target.draftCount < depths[i]!) {
        last = choose(target, logitsBehind(belief, last), 0);
        target.draft![target.draftCount++] = last;
      }
    });
  },
};

/** Returns a model whose logits depend only on the last token. */
function chain() {
  const inner = createScriptedModel((tokens) => tokens.at(-1)!, { vocabSize, maxSequences: 4, maxLogitsRows: 20 });
  const step = (batch: Batch) => {
    const output = inner.step(batch);
    for (let at = 0; at < output.logits.length; at += vocabSize) {
      const row = output.logits.subarray(at, at + vocabSize);
      const last = row.indexOf(Math.max(...row));
      row.set(logitsBehind(truth, last));
    }
    return output;
  };
  return Object.assign(Object.create(inner) as typeof inner, { mtp: heads, step });
}

/** Generates many sequences. Returns their texts and the fraction of accepted drafts. */
function sampled(mtpSampling: "greedy" | "probabilistic", sequences: number, tokens: number) {
  const model = chain();
  const cost = { decodeMs: (rows: number) => 20 + 0.01 * rows, mostDecodeTokens: 100 } as StepTimeModel;
  const options = { ...lookupOnly, promptLookup: false, mtpSampling };
  const loop = new StepLoop(model, {
    limits: { ...generousLimits, maxBatchTokens: model.capacity.maxBatchTokens, maxQueue: sequences },
    frameIntervalMs: 0,
    createSpeculation: (_, choose) => Speculation.create({ model, draft: null, options, cost, choose, now: () => 0 }),
  });
  const frames = new Frames();
  const sampling = { ...greedySampling, temperature: 1 };
  for (let id = 0; id < sequences; id++) {
    const prompt = Int32Array.of(id % vocabSize);
    loop.submit(frames, [
      job(id, { prompt, maxNewTokens: tokens, ignoreEos: true, sampling: { ...sampling, seed: id } }),
    ]);
  }
  while (loop.step());
  const { proposed, accepted } = loop.snapshot().speculation;
  const texts = new Map<number, number[]>();
  for (const { id, token } of frames.rows) texts.set(id, [...(texts.get(id) ?? [id % vocabSize]), token]);
  return { texts: [...texts.values()], share: accepted / proposed };
}

/** Returns the chi-square of the tokens that follow `token`, compared with the expected probabilities. */
function chiSquare(texts: readonly number[][], token: number, chances: readonly number[]): number {
  const counts = new Array<number>(vocabSize).fill(0);
  const behind = texts.flatMap((text) => text.filter((_, i) => i > 0 && text[i - 1] === token));
  for (const one of behind) counts[one]!++;
  const all = behind.length;
  return counts.reduce((sum, count, i) => sum + (count - all * chances[i]!) ** 2 / (all * chances[i]!), 0);
}

describe("tokens drafted by sampling from MTP heads", () => {
  /** Chi-square value with a p-value of 0.0001, for four degrees of freedom. */
  const limit = 23.5;

  it("have the model's distribution, and are right more often than the most likely tokens", () => {
    const drawn = sampled("probabilistic", 400, 30);
    truth.forEach((chances, token) => {
      const value = chiSquare(drawn.texts, token, chances);
      assert.ok(value < limit, `${value} behind ${token}`);
      assert.ok(chiSquare(drawn.texts, token, belief[token]!) > limit, "the test tells the two distributions apart");
    });
    const likeliest = sampled("greedy", 400, 30);
    assert.deepEqual(drawn.texts, likeliest.texts);
    assert.ok(drawn.share > 1.3 * likeliest.share, `${drawn.share} over ${likeliest.share}`);
  });
});

describe("a sampler", () => {
  it("predicts its sample from the same logits, without changing its state", () => {
    const sampler = Sampler.create(64);
    const logits = Float32Array.from({ length: 2 * 64 }, (_, i) => Math.sin(i * i));
    for (const temperature of [0, 1]) {
      const state = sampler.open({ ...greedySampling, temperature, seed: 3 }, 0, new Int32Array(0), new Int32Array(0));
      const foreseen = Array.from({ length: 20 }, (_, ahead) => sampler.foresee(state, logits, 1, ahead));
      const drawn = foreseen.map(() => sampler.sample(state, logits, 1, null));
      assert.deepEqual(drawn, foreseen);
      assert.equal(new Set(drawn).size > 1, temperature > 0);
    }
  });
});
