// Sampler pipeline on both kernels: edits of logits, seeds, logprobs, errors, and the distribution of many draws.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Sampler } from "../../../../engines/decoding/sampler/sampler.ts";
import type { Sampling } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createUniform, kernels, logitsOf, maskOf, neutral, normal, noTokens } from "./fixtures.ts";

const greedy: Sampling = { ...neutral, temperature: 0 };

const compare = (a: number, b: number) => a - b;

const failsWith = (code: string, pattern: RegExp) => (error: unknown) =>
  error instanceof ServerError && error.code === code && pattern.test(error.message);

for (const { name, create } of kernels) {
  const createSampler = (vocabSize: number) => new Sampler(create(vocabSize));

  /** Applies the logit edits of `sampling` to the row and returns it. `output`: the tokens generated so far. */
  const edited = (sampling: Partial<Sampling>, row: number[], prompt: number[] = [], output: number[] = []) => {
    const sampler = createSampler(row.length);
    const state = sampler.open({ ...neutral, ...sampling }, 0, Int32Array.from(prompt), noTokens);
    for (const token of output) state.record(token);
    const logits = Float32Array.from(row);
    state.edit(logits);
    return [...logits];
  };

  describe(`Sampler on the ${name}`, () => {
    it("adds the logit bias", () => {
      const logitBias = [
        [1, 2.5],
        [3, -100],
      ] as const;
      assert.deepEqual(edited({ logitBias }, [1, 1, 1, 1]), [1, 3.5, 1, -99]);
      const sampler = createSampler(4);
      const state = sampler.open({ ...greedy, logitBias }, 0, noTokens, noTokens);
      assert.equal(sampler.sample(state, new Float32Array([4, 3, 3, 50]), 0, null), 1);
    });

    it("divides positive and multiplies negative logits of tokens seen in prompt or output", () => {
      assert.deepEqual(edited({ repetitionPenalty: 2 }, [4, 4, -4, -4, 0], [0, 0, 2], [3, 3]), [2, 4, -8, -8, 0]);
    });

    it("counts presence and frequency only over the output", () => {
      assert.deepEqual(edited({ presencePenalty: 0.5 }, [1, 1, 1], [0], [1, 1]), [1, 0.5, 1]);
      assert.deepEqual(edited({ frequencyPenalty: 0.25 }, [1, 1, 1], [0], [1, 1, 2]), [1, 0.5, 0.75]);
      assert.deepEqual(edited({ frequencyPenalty: -1, presencePenalty: -1 }, [1, 1], [], [1, 1, 1]), [1, 5]);
    });

    it("applies bias, then repetition, then presence and frequency, then DRY", () => {
      const dry = { multiplier: 1, base: 1, allowedLength: 1, sequenceBreakers: [] };
      const settings = { repetitionPenalty: 2, presencePenalty: 0.25, frequencyPenalty: 0.5, dry };
      // The logit of token 1 becomes (2 + 4) / 2 - 0.25 - 0.5 - 1.
      assert.deepEqual(edited({ ...settings, logitBias: [[1, 4]] }, [2, 2], [], [0, 1, 0])[1], 1.25);
    });

    it("takes no memory for the vocabulary before the first token, as many sequences wait for slots", () => {
      const [vocabSize, waiting] = [100_000, 64];
      const sampler = createSampler(vocabSize);
      const before = process.memoryUsage().arrayBuffers;
      const states = Array.from({ length: waiting }, () =>
        sampler.open({ ...neutral, repetitionPenalty: 2 }, 0, Int32Array.of(1), noTokens),
      );
      const bytes = process.memoryUsage().arrayBuffers - before;
      assert.ok(bytes < 4 * vocabSize, `${bytes} bytes for ${states.length} waiting sequences`);
    });

    it("remembers more tokens than its first allocation", () => {
      const row = new Array<number>(1000).fill(1);
      const output = Array.from({ length: 900 }, (_, i) => i);
      const expected = row.map((logit, id) => (id < 900 ? logit - 1 : logit));
      assert.deepEqual(edited({ presencePenalty: 1 }, row, [], output), expected);
    });

    it("bans tokens until enough have been recorded, unless the grammar allows nothing else", () => {
      const sampler = createSampler(4);
      const banned = { tokens: Int32Array.of(0, 3), until: 2 };
      const logits = new Float32Array([4, 1, 2, 5]);
      for (const sampling of [greedy, { ...neutral, topK: 1 }]) {
        const open = () => sampler.open({ ...sampling, logitBias: [[0, 100]] }, 0, noTokens, noTokens, banned);
        const state = open();
        assert.deepEqual(
          [0, 1, 2].map((ahead) => sampler.foresee(state, logits, 0, ahead)),
          [2, 2, 0],
        );
        assert.equal(sampler.sample(state, logits, 0, null), 2);
        sampler.force(state, 1);
        assert.equal(sampler.sample(state, logits, 0, null), 0);
        assert.equal(sampler.sample(open(), logits, 0, maskOf(4, [1, 3])), 1);
        assert.equal(sampler.sample(open(), logits, 0, maskOf(4, [3])), 3);
      }
    });

    it("never chooses a suppressed token", () => {
      const sampler = new Sampler(create(4), [3, 0, 4]);
      const logits = new Float32Array([4, 1, 2, 5]);
      for (const sampling of [greedy, { ...neutral, topK: 1 }]) {
        const state = sampler.open({ ...sampling, logitBias: [[0, 100]] }, 0, noTokens, noTokens);
        assert.equal(sampler.foresee(state, logits, 0, 0), 2);
        assert.equal(sampler.sample(state, logits, 0, null), 2);
        assert.equal(sampler.sample(state, logits, 0, maskOf(4, [1, 3])), 1);
      }
    });

    it("records what it chose", () => {
      const sampler = createSampler(3);
      const state = sampler.open({ ...greedy, presencePenalty: 2 }, 0, noTokens, noTokens);
      const logits = new Float32Array([3, 2, 1.5]);
      const tokens = [1, 2, 3].map(() => sampler.sample(state, logits, 0, null));
      assert.deepEqual(tokens, [0, 1, 2]);
      assert.deepEqual([...logits], [3, 2, 1.5], "the engine's logits are left alone");
    });

    it("reads the requested row, wherever the logits are in memory", () => {
      const sampler = createSampler(3);
      const state = sampler.open(greedy, 0, noTokens, noTokens);
      const logits = new Float32Array([9, 0, 0, 1, 2, 3, 3, 2, 1]).subarray(3);
      assert.deepEqual([sampler.sample(state, logits, 0, null), sampler.sample(state, logits, 1, null)], [2, 0]);
      assert.throws(() => sampler.sample(state, logits, 2, null), /row 2 of 2 rows/);
    });

    it("repeats for a seed; choice i uses seed + i; no seed differs", () => {
      const sampler = createSampler(50);
      const logits = new Float32Array(50);
      const draw = (seed: number | null, choice: number) => {
        const state = sampler.open({ ...neutral, seed }, choice, noTokens, noTokens);
        return Array.from({ length: 20 }, () => sampler.sample(state, logits, 0, null));
      };
      assert.deepEqual(draw(42, 0), draw(42, 0));
      assert.deepEqual(draw(42, 3), draw(45, 0));
      assert.notDeepEqual(draw(42, 0), draw(43, 0));
      assert.notDeepEqual(draw(null, 0), draw(null, 0));
      assert.equal(draw(-1, 0).length, 20);
      assert.equal(draw(2 ** 63, 0).length, 20);
    });

    it("draws as often as the probabilities say", () => {
      const uniform = createUniform(11);
      const logits = Float32Array.from({ length: 40 }, () => 1.5 * normal(uniform));
      const sampler = createSampler(40);
      const state = sampler.open(neutral, 0, noTokens, noTokens);
      const seen = new Array<number>(40).fill(0);
      const draws = 20_000;
      for (let i = 0; i < draws; i++) seen[sampler.sample(state, logits, 0, null)]!++;
      const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
      let chiSquare = 0;
      for (const [id, logit] of logits.entries()) {
        const expected = (draws * Math.exp(logit)) / total;
        chiSquare += (seen[id]! - expected) ** 2 / expected;
      }
      assert(chiSquare < 76, `chi-square ${chiSquare} with 39 degrees of freedom`); // The p-value of 76 is 0.0004.
    });

    it("treats a vanishing temperature as greedy", () => {
      const sampler = createSampler(3);
      for (const temperature of [0, 1e-6, 1e-40]) {
        const state = sampler.open({ ...neutral, temperature }, 0, noTokens, noTokens);
        assert.equal(sampler.sample(state, new Float32Array([1, 1.001, 1.001]), 0, null), 1);
      }
    });

    it("reports logprobs of the model's own distribution, before bias, penalties and temperature", () => {
      const sampler = createSampler(4);
      const sampling = { ...neutral, temperature: 0.3, logitBias: [[0, 100]] as const, topLogprobs: 2 };
      const state = sampler.open(sampling, 0, noTokens, noTokens);
      assert.equal(sampler.sample(state, logitsOf(0.1, 0.2, 0.3, 0.4), 0, null), 0);
      const { chosen, count, ids, logprobs } = sampler.lastLogprobs;
      assert.equal(count, 2);
      assert.deepEqual([...ids.subarray(0, 2)], [3, 2]);
      for (const [seen, probability] of [
        [chosen, 0.1],
        [logprobs[0]!, 0.4],
        [logprobs[1]!, 0.3],
      ] as const) {
        assert(Math.abs(Math.exp(seen) - probability) < 1e-6);
      }
    });

    it("reports only the chosen token for 0 alternatives, and at most all tokens", () => {
      const sampler = createSampler(3);
      const logits = new Float32Array([5, Number.NEGATIVE_INFINITY, 5]);
      sampler.sample(sampler.open({ ...greedy, topLogprobs: 0 }, 0, noTokens, noTokens), logits, 0, null);
      assert.equal(sampler.lastLogprobs.count, 0);
      assert(Math.abs(sampler.lastLogprobs.chosen - Math.log(0.5)) < 1e-6);
      sampler.sample(sampler.open({ ...greedy, topLogprobs: 20 }, 0, noTokens, noTokens), logits, 0, null);
      assert.equal(sampler.lastLogprobs.count, 2);
      assert.deepEqual([...sampler.lastLogprobs.ids.subarray(0, 2)], [0, 2]);
    });

    it("chooses only what the mask allows, after all edits, whatever the model prefers", () => {
      const sampler = createSampler(70);
      const logits = Float32Array.from({ length: 70 }, (_, id) => id / 10);
      const mask = maskOf(70, [3, 31, 32, 64]);
      const logitBias = [[69, 50]] as const;
      const draw = (sampling: Sampling) => {
        const state = sampler.open(sampling, 0, noTokens, noTokens);
        return new Set(Array.from({ length: 200 }, () => sampler.sample(state, logits, 0, mask)));
      };
      assert.deepEqual(draw({ ...greedy, logitBias }), new Set([64]));
      assert.deepEqual([...draw({ ...neutral, temperature: 9, logitBias })].sort(compare), [3, 31, 32, 64]);
      assert.deepEqual([...draw({ ...neutral, temperature: 9, topK: 2 })].sort(compare), [32, 64]);
    });

    it("keeps no mask for the next row", () => {
      const sampler = createSampler(40);
      const logits = Float32Array.from({ length: 40 }, (_, id) => id);
      const state = sampler.open(greedy, 0, noTokens, noTokens);
      assert.equal(sampler.sample(state, logits, 0, maskOf(40, [7])), 7);
      assert.equal(sampler.sample(state, logits, 0, null), 39);
      assert.throws(() => sampler.sample(state, logits, 0, new Int32Array(3)), /mask of 3 words .* take 2/);
    });

    it("reports logprobs of the model's own distribution under a mask too", () => {
      const sampler = createSampler(4);
      const state = sampler.open({ ...greedy, topLogprobs: 1 }, 0, noTokens, noTokens);
      assert.equal(sampler.sample(state, logitsOf(0.1, 0.2, 0.3, 0.4), 0, maskOf(4, [0, 1])), 1);
      const { chosen, ids, logprobs } = sampler.lastLogprobs;
      assert(Math.abs(Math.exp(chosen) - 0.2) < 1e-6);
      assert.equal(ids[0], 3);
      assert(Math.abs(Math.exp(logprobs[0]!) - 0.4) < 1e-6);
    });

    it("records a given token: its logprob, and the most likely tokens", () => {
      const sampler = createSampler(3);
      const logits = new Float32Array([...logitsOf(0.9, 0.05, 0.05), ...logitsOf(0.1, 0.2, 0.7)]);
      const { chosen, count, ids, logprobs } = sampler.observe(logits, 1, 0, 2);
      assert(Math.abs(Math.exp(chosen) - 0.1) < 1e-6);
      assert.deepEqual([count, ...ids.subarray(0, 2)], [2, 2, 1]);
      assert(Math.abs(Math.exp(logprobs[1]!) - 0.2) < 1e-6);
      assert.equal(sampler.observe(logits, 0, 1, 0).count, 0);
      assert.throws(() => sampler.observe(logits, 0, 1, 21), /21 of at most 20/);
      assert.throws(() => sampler.observe(logits, 2, 1, 1), /row 2 of 2 rows/);
    });

    it("counts a forced token as output, and draws nothing for it", () => {
      const sampler = createSampler(50);
      const logits = new Float32Array(50);
      const penalised = { ...neutral, presencePenalty: 100 };
      const [alone, forced] = [neutral, neutral].map((sampling) => sampler.open(sampling, 0, noTokens, noTokens));
      sampler.force(forced!, 3);
      assert.equal(sampler.sample(forced!, logits, 0, null), sampler.sample(alone!, logits, 0, null));
      const state = sampler.open({ ...penalised, temperature: 0 }, 0, noTokens, noTokens);
      sampler.force(state, 0);
      assert.equal(sampler.sample(state, logits, 0, null), 1);
    });

    it("fails with a named error if no token can be chosen", () => {
      const sampler = createSampler(3);
      const nothing = new Float32Array(3).fill(Number.NaN);
      for (const sampling of [greedy, neutral]) {
        const state = sampler.open(sampling, 0, noTokens, noTokens);
        assert.throws(
          () => sampler.sample(state, nothing, 0, null),
          failsWith("model_failed", /3 of row 0.* NaN or -inf/),
        );
        const logits = new Float32Array(3);
        assert.throws(() => sampler.sample(state, logits, 0, maskOf(3, [])), failsWith("model_failed", /banned/));
      }
    });

    it("refuses a logit bias outside the vocabulary, a seed that is not an integer, too many logprobs", () => {
      const sampler = createSampler(3);
      for (const token of [3, -1, 0.5]) {
        const sampling = { ...neutral, logitBias: [[token, 1]] as const };
        const refused = failsWith("invalid_value", /logit_bias names token .* from 0 to 2/);
        assert.throws(() => sampler.open(sampling, 0, noTokens, noTokens), refused);
      }
      const sampling = { ...neutral, seed: 1.5 };
      assert.throws(() => sampler.open(sampling, 0, noTokens, noTokens), failsWith("invalid_value", /seed .* 1.5/));
      const tooMany = { ...neutral, topLogprobs: 21 };
      assert.throws(() => sampler.open(tooMany, 0, noTokens, noTokens), failsWith("invalid_value", /0 to 20; got 21/));
    });
  });
}

describe("Sampler", () => {
  it("gives the same tokens for a seed on both kernels", () => {
    const vocabSize = 700;
    const uniform = createUniform(3);
    const logits = Float32Array.from({ length: 8 * vocabSize }, () => 3 * normal(uniform));
    const dry = { multiplier: 0.8, base: 1.75, allowedLength: 2, sequenceBreakers: [] };
    const sampling = {
      ...neutral,
      repetitionPenalty: 1.1,
      frequencyPenalty: 0.2,
      topK: 100,
      topP: 0.9,
      minP: 0.01,
      dry,
    };
    const [plain, simd] = kernels.map(({ create }) => {
      const sampler = new Sampler(create(vocabSize));
      const state = sampler.open(sampling, 0, Int32Array.of(1, 2, 3), noTokens);
      return Array.from({ length: 400 }, (_, step) => sampler.sample(state, logits, step % 8, null));
    });
    assert.deepEqual(simd, plain);
  });

  it("follows SAMPLER_SIMD and rejects unknown values", () => {
    const before = process.env.SAMPLER_SIMD;
    try {
      for (const setting of ["0", "1", ""]) {
        process.env.SAMPLER_SIMD = setting;
        assert.equal(Sampler.create(10).vocabSize, 10);
      }
      process.env.SAMPLER_SIMD = "yes";
      assert.throws(() => Sampler.create(10), failsWith("config_invalid", /SAMPLER_SIMD must be 0 or 1.*"yes"/));
    } finally {
      if (before === undefined) delete process.env.SAMPLER_SIMD;
      else process.env.SAMPLER_SIMD = before;
    }
  });

  it("supports a vocabulary of 262,144 tokens", () => {
    const sampler = Sampler.create(262_144);
    const logits = new Float32Array(262_144);
    logits[262_143] = 1;
    assert.equal(sampler.sample(sampler.open(greedy, 0, noTokens, noTokens), logits, 0, null), 262_143);
    const topP = { ...neutral, topP: 0.5 };
    assert(sampler.sample(sampler.open(topP, 0, noTokens, noTokens), logits, 0, null) >= 0);
  });
});
