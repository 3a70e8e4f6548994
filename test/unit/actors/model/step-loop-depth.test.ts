import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { jobDefaults, rowFinishedLength, rowFinishedStop, rowHasToken } from "../../../../actors/messages.ts";
import { RequestPreparation } from "../../../../actors/model/request-preparation.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { Allowed, GrammarAsker, GrammarHost, Matcher } from "../../../../engines/decoding/grammar/matcher.ts";
import type { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import type { Speculation } from "../../../../engines/decoding/speculation/speculation.ts";
import { greedySampling } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { settled } from "../../../fixtures/fakes/fake-clock.ts";
import { createFakeEngine, type FakeEngineOptions, fakeNextToken } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

const vocabSize = 64;

/** Drafter that proposes `depth` tokens in each step. Every third token is wrong. */
class FlawedOracle {
  readonly statistics = { drafts: 0, proposed: 0, accepted: 0, dropped: 0, acceptedAt: new Int32Array(8) };
  readonly #depth: number;
  #drafted = 0;

  constructor(depth: number) {
    this.#depth = depth;
  }

  prepare(decodes: readonly Sequence[]): void {
    for (const sequence of decodes) {
      const tokens = [...sequence.tokens.subarray(0, sequence.total)];
      const depth = Math.min(this.#depth, sequence.tokens.length - sequence.total - 1);
      sequence.draft ??= new Int32Array(8);
      sequence.draftCount = Math.max(depth, 0);
      for (let i = 0; i < depth; i++) {
        const next = fakeNextToken(tokens, vocabSize);
        tokens.push(next);
        sequence.draft[i] = this.#drafted++ % 3 === 2 ? (next + 1) % vocabSize : next;
      }
    }
  }

  observe(_: Sequence, drafted: number, accepted: number): void {
    this.statistics.proposed += drafted;
    this.statistics.accepted += accepted;
  }

  forget(): void {}
  dispose(): void {}
}

function generated(engine: FakeEngineOptions, oracle: FlawedOracle | null, ids: readonly number[]) {
  const model = createFakeEngine({ vocabSize, ...engine });
  const loop = new StepLoop(model, {
    limits: { ...generousLimits, maxBatchTokens: model.capacity.maxBatchTokens },
    frameIntervalMs: 0,
    ...(oracle && { createSpeculation: () => oracle as unknown as Speculation }),
  });
  const frames = new Frames();
  loop.submit(
    frames,
    ids.map((id) => job(id, { maxNewTokens: 40, prompt: Int32Array.of(id, 2, 3) })),
  );
  let steps = 0;
  while (loop.step()) steps++;
  const rows = ids.map((id) => frames.rows.filter((row) => row.id === id));
  return { rows: rows.map((own) => own.map(({ token, flags }) => [token, flags])), steps, loop, model };
}

describe("drafted tokens in the step loop", () => {
  it("change no token of any sequence, and save steps", () => {
    const plain = generated({ endOfGeneration: [0] }, null, [1, 2, 3]);
    const oracle = new FlawedOracle(4);
    const drafted = generated({ endOfGeneration: [0], extraLogitsRows: 12 }, oracle, [1, 2, 3]);
    assert.deepEqual(drafted.rows, plain.rows);
    assert.ok(drafted.steps < 0.7 * plain.steps, `${drafted.steps} steps of ${plain.steps}`);
    assert.ok(oracle.statistics.accepted > 10 && oracle.statistics.accepted < oracle.statistics.proposed);
    assert.equal(drafted.model.cache.size, 0);
  });

  it("are cut to the logits rows and batch tokens of a step, after the next token of every sequence", () => {
    const plain = generated({}, null, [1, 2, 3]);
    for (const engine of [{ extraLogitsRows: 1 }, { extraLogitsRows: 0 }, { maxBatchTokens: 4, extraLogitsRows: 12 }]) {
      assert.deepEqual(generated(engine, new FlawedOracle(7), [1, 2, 3]).rows, plain.rows);
    }
  });

  it("count in the time of steps, as a draft model may take a large part of it", () => {
    const draftMs = 2;
    const oracle = new FlawedOracle(4);
    const { prepare } = oracle;
    oracle.prepare = (decodes) => {
      const until = performance.now() + draftMs;
      while (performance.now() < until);
      prepare.call(oracle, decodes);
    };
    const { steps, loop } = generated({ extraLogitsRows: 12 }, oracle, [1]);
    const { totalMs, engineMs } = loop.snapshot();
    assert.ok(totalMs - engineMs >= draftMs * steps, `${totalMs} ms for ${steps} steps`);
  });
});

/** Grammar that allows only even tokens, and forces 10, 12, 14 after the second accepted token. */
class EvenTokens implements Matcher {
  readonly param = undefined;
  isReady = true;
  closed = false;
  readonly accepted: number[] = [];
  #forced: number[] = [];

  wait(): boolean {
    return this.isReady;
  }

  allowed(): Allowed {
    const mask = new Int32Array(vocabSize / 32).fill(0x5555_5555);
    return { forced: Int32Array.from(this.#forced), mask };
  }

  accept(token: number): void {
    this.accepted.push(token);
    this.#forced = this.accepted.length === 2 ? [10, 12, 14] : [];
  }

  close(): void {
    this.closed = true;
  }
}

function grammarRig() {
  const matchers: EvenTokens[] = [];
  let answer: () => void = () => {};
  const compiled = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const grammars: GrammarHost = {
    compile: async (source) => {
      await compiled;
      if (source.grammar === "broken") throw new ServerError("invalid_value", "no such rule", { param: "grammar" });
      return {
        open: () => {
          const matcher = new EvenTokens();
          matchers.push(matcher);
          return matcher;
        },
      };
    },
    dispose: async () => {},
  };
  const model = createFakeEngine({ vocabSize, maxSequences: 2 });
  const loop = new StepLoop(model, { limits: generousLimits, frameIntervalMs: 0 });
  return {
    loop,
    intake: new RequestPreparation({ loop, grammars, store: null }),
    matchers,
    compile: () => answer(),
    model,
  };
}

describe("a sequence under a grammar", () => {
  const json = { ...jobDefaults, grammar: { kind: "ebnf", grammar: "even" } } as const;

  it("gets only allowed tokens, and forced tokens all at once", async () => {
    const { loop, intake, matchers, compile } = grammarRig();
    const frames = new Frames();
    const queued = intake.submit(frames, [job(1, { ...json, maxNewTokens: 12, ignoreEos: true })]);
    compile();
    await queued;
    let steps = 0;
    while (loop.step()) steps++;
    const tokens = frames.rows.map(({ token }) => token);
    assert.equal(tokens.length, 12);
    assert.ok(tokens.every((token) => token % 2 === 0));
    assert.deepEqual(tokens.slice(2, 5), [10, 12, 14]);
    // Two of the output tokens need no step of their own, because one step accepts the three forced tokens.
    assert.equal(steps, 10);
    assert.deepEqual(matchers[0]?.accepted, [...tokens.slice(0, 2), ...tokens.slice(5, -1)]);
    assert.ok(matchers[0]?.closed);
  });

  it("sits out while its grammar's thread is busy, and no other sequence waits for it", async () => {
    const { loop, intake, matchers, compile } = grammarRig();
    const frames = new Frames();
    compile();
    await intake.submit(frames, [job(1, { ...json, maxNewTokens: 4 })]);
    const [matcher] = matchers;
    assert.ok(matcher);
    matcher.isReady = false;
    loop.submit(frames, [job(2, { maxNewTokens: 3 })]);
    while (loop.step());
    assert.deepEqual([...new Set(frames.rows.map(({ id }) => id))], [2]);
    matcher.isReady = true;
    while (loop.step());
    assert.equal(frames.rows.filter(({ id }) => id === 1).length, 4);
  });

  it("is not queued if it is cancelled before its grammar is compiled, and refused if that fails", async () => {
    const { loop, intake, matchers, compile } = grammarRig();
    const frames = new Frames();
    const first = intake.submit(frames, [job(1, json)]);
    const broken = { kind: "ebnf", grammar: "broken" } as const;
    const second = intake.submit(frames, [job(2), job(3, { grammar: broken })]);
    intake.cancel(frames, [1]);
    compile();
    await first;
    await assert.rejects(Promise.resolve(second), { code: "invalid_value", param: "grammar" });
    await settled();
    assert.equal(loop.step(), false);
    assert.equal(matchers.length, 0);
  });
});

describe("a grammar of several choices", () => {
  it("is compiled once, and matched for each choice", async () => {
    const loop = new StepLoop(createFakeEngine({ vocabSize }), { limits: generousLimits, frameIntervalMs: 0 });
    const matchers: EvenTokens[] = [];
    let compilations = 0;
    const open = () => {
      const matcher = new EvenTokens();
      matchers.push(matcher);
      return matcher;
    };
    const grammars: GrammarHost = {
      compile: async () => {
        compilations++;
        return { open };
      },
      dispose: async () => {},
    };
    const grammar = { kind: "ebnf", grammar: "even" } as const;
    const jobs = [1, 2, 3].map((id) => job(id, { grammar, choice: id - 1 }));
    await new RequestPreparation({ loop, grammars, store: null }).submit(new Frames(), jobs);
    assert.deepEqual([compilations, matchers.length], [1, 3]);
    loop.stop();
  });
});

describe("a grammar that is being compiled", () => {
  it("is aborted when its sequence is cancelled or its subscriber dropped, and not before", async () => {
    const loop = new StepLoop(createFakeEngine({ vocabSize }), { limits: generousLimits, frameIntervalMs: 0 });
    const asked: GrammarAsker[] = [];
    const grammars: GrammarHost = {
      compile: (_, asker) => {
        asked.push(asker);
        return new Promise((_, reject) => asker.signal.addEventListener("abort", () => reject(new Error("given up"))));
      },
      dispose: async () => {},
    };
    const intake = new RequestPreparation({ loop, grammars, store: null });
    const grammar = { kind: "ebnf", grammar: "any" } as const;
    const [one, other] = [new Frames(), new Frames()];
    const submitted = [
      intake.submit(one, [job(1, { grammar, client: "a" }), job(2, { grammar, client: "a" })]),
      intake.submit(one, [job(3, { grammar })]),
      intake.submit(other, [job(1, { grammar, client: "b" })]),
    ];
    assert.deepEqual(
      asked.map(({ client }) => client),
      ["a", "client", "b"],
    );
    intake.cancel(one, [1]);
    await settled();
    const isGivenUp = () => asked.map(({ signal }) => signal.aborted);
    assert.deepEqual(isGivenUp(), [true, false, false, false], "the second choice is wanted");
    intake.drop(one);
    assert.deepEqual(isGivenUp(), [true, true, false, true]);
    intake.cancel(other, [1]);
    await Promise.all(submitted);
    assert.equal(loop.step(), false);
  });
});

describe("the end of reasoning", () => {
  it("is forced after the allowed number of tokens, and the answer follows it", () => {
    const { loop } = grammarRig();
    const frames = new Frames();
    const none = new Int32Array(0);
    const reasoningBudget = { tokens: 3, blanks: none, begin: none, end: Int32Array.of(60, 61) };
    loop.submit(frames, [job(1, { reasoningBudget, maxNewTokens: 8, ignoreEos: true })]);
    while (loop.step());
    const tokens = frames.rows.map(({ token }) => token);
    assert.deepEqual(tokens.slice(3, 5), [60, 61]);
    assert.equal(tokens.length, 8);
    assert.deepEqual(
      frames.rows.map(({ flags }) => flags & (rowHasToken | rowFinishedLength | rowFinishedStop)),
      [...new Array(7).fill(rowHasToken), rowHasToken | rowFinishedLength],
    );
  });

  it("is forced at once if the prompt has begun the reasoning and no token is allowed", () => {
    const { loop } = grammarRig();
    const frames = new Frames();
    const none = new Int32Array(0);
    const reasoningBudget = { tokens: 0, blanks: none, begin: none, end: Int32Array.of(60, 61) };
    loop.submit(frames, [job(1, { reasoningBudget, maxNewTokens: 4, ignoreEos: true })]);
    while (loop.step());
    const tokens = frames.rows.map(({ token }) => token);
    assert.deepEqual([tokens.slice(0, 2), tokens.length], [[60, 61], 4]);
  });

  it("is forced after white space and the begin tag, and not if other text comes first", () => {
    const run = (blanks: readonly number[]) => {
      const { loop } = grammarRig();
      const frames = new Frames();
      const budget = {
        tokens: 2,
        blanks: Int32Array.from(blanks),
        begin: Int32Array.of(free[1]!),
        end: Int32Array.of(60),
      };
      loop.submit(frames, [job(1, { reasoningBudget: budget, maxNewTokens: 8, ignoreEos: true })]);
      while (loop.step());
      return frames.rows.map(({ token }) => token);
    };
    const { loop } = grammarRig();
    const frames = new Frames();
    loop.submit(frames, [job(1, { maxNewTokens: 8, ignoreEos: true })]);
    while (loop.step());
    const free = frames.rows.map(({ token }) => token);
    assert.deepEqual(run([free[0]!]).slice(0, 5), [...free.slice(0, 4), 60]);
    assert.deepEqual(run([]), free);
  });
});

describe("the end of a sequence", () => {
  const run = (changes: Parameters<typeof job>[1], endOfGeneration: readonly number[] = []) => {
    const model = createFakeEngine({ vocabSize, endOfGeneration: [...endOfGeneration] });
    const loop = new StepLoop(model, { limits: generousLimits, frameIntervalMs: 0 });
    const frames = new Frames();
    loop.submit(frames, [job(1, { maxNewTokens: 12, sampling: greedySampling, ignoreEos: false, ...changes })]);
    while (loop.step());
    const shown = frames.rows.filter(({ flags }) => (flags & rowHasToken) !== 0).map(({ token }) => token);
    return { tokens: shown, isStopped: ((frames.rows.at(-1)?.flags ?? 0) & rowFinishedStop) !== 0 };
  };
  const free = run({}).tokens;
  const [third, fifth] = [free[2]!, free[4]!];

  it("is a stop token, which is left out, also if end-of-generation tokens are ignored", () => {
    for (const ignoreEos of [false, true]) {
      const { tokens, isStopped } = run({ stopTokens: [free.at(-1)!, third], ignoreEos });
      assert.deepEqual([tokens, isStopped], [free.slice(0, free.indexOf(third)), true]);
    }
    assert.throws(() => run({ stopTokens: [vocabSize] }), { code: "invalid_value", param: "stop_token_ids" });
  });

  it("is not chosen before the minimum of tokens", () => {
    for (const stopTokens of [[], [fifth]]) {
      const early = run({ stopTokens }, [third]);
      assert.ok(early.isStopped && early.tokens.length < 8);
      const late = run({ stopTokens, minNewTokens: 8 }, [third]);
      assert.ok(late.tokens.length >= 8);
      assert.ok(!late.tokens.slice(0, 8).some((token) => token === third || stopTokens.includes(token)));
      const all = run({ stopTokens, minNewTokens: 12 }, [third]);
      assert.deepEqual([all.tokens.length, all.isStopped], [12, false]);
    }
    // With ignoreEos, end-of-generation tokens end nothing, so min_new_tokens does not ban them.
    assert.deepEqual(run({ minNewTokens: 12, ignoreEos: true }, [third]).tokens, free);
  });
});

describe("suppressed tokens", () => {
  it("are never generated, with any sampling settings", () => {
    const run = (suppressed: readonly number[], changes: Parameters<typeof job>[1]) => {
      const loop = new StepLoop(createFakeEngine({ vocabSize, suppressed }), {
        limits: generousLimits,
        frameIntervalMs: 0,
      });
      const frames = new Frames();
      loop.submit(frames, [job(1, { maxNewTokens: 12, ignoreEos: true, ...changes })]);
      while (loop.step());
      return frames.rows.filter(({ flags }) => (flags & rowHasToken) !== 0).map(({ token }) => token);
    };
    const free = run([], { sampling: greedySampling });
    const [second] = [free[1]!];
    for (const sampling of [greedySampling, { ...greedySampling, logitBias: [[second, 100]] as [number, number][] }]) {
      const tokens = run([second, vocabSize], { sampling });
      assert.equal(tokens.length, 12);
      assert.equal(tokens[0], free[0]);
      assert.ok(!tokens.includes(second));
    }
  });
});

describe("logprobs of a prompt", () => {
  it("come with the first token, one for each prompt token but the first, however the prompt is chunked", () => {
    const records = [1, 40].map((extraLogitsRows) => {
      const model = createFakeEngine({ vocabSize, extraLogitsRows });
      const loop = new StepLoop(model, { limits: generousLimits, frameIntervalMs: 0 });
      const frames = new Frames();
      const prompt = Int32Array.from({ length: 30 }, (_, i) => i);
      loop.submit(frames, [job(1, { prompt, promptLogprobs: 1, sampling: greedySampling, maxNewTokens: 2 })]);
      while (loop.step());
      const [found] = frames.all.flatMap(({ prompts }) => prompts);
      assert.equal(found?.id, 1);
      return [...(found?.records ?? [])];
    });
    assert.deepEqual(records[0], records[1]);
    assert.equal(records[0]?.length, 29 * 4);
    for (let i = 0; i < 29; i++) {
      const record: number[] = (records[0] ?? []).slice(4 * i, 4 * i + 3);
      const [chosen, count, likeliest] = record;
      const expected = fakeNextToken(
        Array.from({ length: i + 1 }, (_, k) => k),
        vocabSize,
      );
      assert.deepEqual([count, likeliest], [1, expected]);
      assert.equal((chosen ?? 0) > -4, expected === i + 1);
    }
  });

  it("change no token, also if a draft follows the last token of the prompt", () => {
    const [plain, drafted] = [null, new FlawedOracle(4)].map((oracle) => {
      const loop = new StepLoop(createFakeEngine({ vocabSize, extraLogitsRows: 40 }), {
        // The last step of the prompt computes one token, like a step that only decodes.
        limits: { ...generousLimits, maxPrefillChunkTokens: 29 },
        frameIntervalMs: 0,
        ...(oracle && { createSpeculation: () => oracle as unknown as Speculation }),
      });
      const frames = new Frames();
      const prompt = Int32Array.from({ length: 30 }, (_, i) => i);
      loop.submit(frames, [job(1, { prompt, promptLogprobs: 1, sampling: greedySampling, maxNewTokens: 8 })]);
      while (loop.step());
      return frames.rows.map(({ token }) => token);
    });
    assert.deepEqual(drafted, plain);
  });
});

describe("pooled outputs", () => {
  it("are the mean over each prompt's tokens, more prompts than slots and beside generations", async () => {
    const model = createFakeEngine({ vocabSize, maxSequences: 2, maxBatchTokens: 16 });
    const loop = new StepLoop(model, { limits: { ...generousLimits, maxBatchTokens: 16 }, frameIntervalMs: 0 });
    const frames = new Frames();
    loop.submit(frames, [job(1, { maxNewTokens: 10, ignoreEos: true })]);
    const prompts = [5, 40, 1, 17].map((length) => Int32Array.from({ length }, (_, i) => i));
    const pooled = loop.pool(frames, {
      id: 2,
      job: { client: "c", prompts, adapter: 0, priority: 0, hasBegun: false },
    });
    while (loop.step());
    assert.deepEqual([...(await pooled)], [2, 19.5, 0, 8]);
    assert.equal(frames.rows.length, 10);
  });

  it("can be cancelled, and are refused if a prompt is too long", async () => {
    const model = createFakeEngine({ vocabSize });
    const loop = new StepLoop(model, { limits: generousLimits, frameIntervalMs: 0 });
    const frames = new Frames();
    const long = {
      client: "c",
      prompts: [new Int32Array(4), new Int32Array(1000)],
      adapter: 0,
      priority: 0,
      hasBegun: false,
    };
    await assert.rejects(loop.pool(frames, { id: 1, job: long }), { code: "context_length_exceeded" });
    const given = loop.pool(frames, { id: 2, job: { ...long, prompts: [new Int32Array(100)] } });
    loop.cancel(frames, [2]);
    await assert.rejects(given, { code: "peer_gone" });
    assert.equal(loop.step(), false);
    assert.equal(model.cache.size, 0);
  });
});
