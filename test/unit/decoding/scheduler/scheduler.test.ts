import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { fakeNextToken } from "../../../fixtures/fakes/fake-engine.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

function hasCode(code: string, fragment: RegExp) {
  return (error: unknown) => error instanceof ServerError && error.code === code && fragment.test(error.message);
}

describe("the scheduler", () => {
  it("feeds a prompt, then one token per step, until max_tokens", () => {
    const { scheduler, step } = createScheduler();
    const sequence = createSequence({ prompt: 8, maxNewTokens: 3 });
    scheduler.add(sequence);
    assert.deepEqual(
      step()?.fed.map(({ from, to }) => [from, to]),
      [[0, 8]],
    );
    assert.deepEqual(
      step()?.fed.map(({ from, to }) => [from, to]),
      [[8, 9]],
    );
    const last = step();
    assert.deepEqual(
      last?.ended.map(({ finish }) => finish),
      ["length"],
    );
    assert.equal(step(), null);
    assert.equal(sequence.total, 11);
  });

  it("generates the same tokens however the prompt is split into chunks", () => {
    const generate = (maxPrefillChunkTokens: number) => {
      const { scheduler, step } = createScheduler({ limits: { maxPrefillChunkTokens } });
      const sequence = createSequence({ prompt: 100, maxNewTokens: 5 });
      scheduler.add(sequence);
      while (step());
      return [...sequence.tokens];
    };
    const whole = generate(128);
    assert.equal(whole[100], fakeNextToken(whole.slice(0, 100), 64));
    assert.deepEqual(generate(32), whole);
    assert.deepEqual(generate(7), whole);
  });

  it("ends chunks on multiples of 32 from position 0 under any load", () => {
    const { scheduler, step } = createScheduler({ engine: { maxSequences: 8, sequenceTokens: 512 } });
    for (let i = 0; i < 4; i++) scheduler.add(createSequence({ prompt: 3, maxNewTokens: 200, seed: i }));
    step();
    const long = createSequence({ prompt: 300, maxNewTokens: 2 });
    scheduler.add(long);
    const ends: number[] = [];
    for (let i = 0; i < 200 && long.computed < 300; i++) {
      const mine = step(5 + (i % 7) * 9)?.fed.find(({ sequence }) => sequence === long);
      if (mine) ends.push(mine.to);
    }
    assert.equal(ends.at(-1), 300);
    assert.ok(ends.length > 2, "the load should cut the prompt into several chunks");
    for (const end of ends.slice(0, -1)) assert.equal(end % 32, 0);
  });

  it("keeps every step within the token budget and serves all sequences in turn", () => {
    const { scheduler, step } = createScheduler({ engine: { maxSequences: 8 }, limits: { maxBatchTokens: 3 } });
    const sequences = Array.from({ length: 8 }, (_, i) => createSequence({ prompt: 2, maxNewTokens: 100, seed: i }));
    for (const sequence of sequences) scheduler.add(sequence);
    for (let i = 0; i < 120; i++) assert.ok((step()?.tokenCount ?? 0) <= 3);
    const made = sequences.map((sequence) => sequence.total - sequence.promptLength);
    assert.ok(Math.min(...made) > 0, `each made progress: ${made}`);
    while (step());
    assert.ok(sequences.every((sequence) => sequence.state === "finished"));
  });

  it("runs at most max_decode_steps_before_prefill decode-only steps while a prompt waits", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 4, sequenceTokens: 600, maxBatchTokens: 256 },
      limits: { maxDecodeStepsBeforePrefill: 3, decodeSlowdown: 1.01 },
    });
    scheduler.add(createSequence({ prompt: 40, maxNewTokens: 500 }));
    // The first step takes 4 s, so the scheduler learns that prompt tokens slow a step down far more than allowed.
    step(4000);
    step(1);
    const long = createSequence({ prompt: 200, maxNewTokens: 1 });
    scheduler.add(long);
    const waits: number[] = [];
    let waited = 0;
    while (long.state !== "finished") {
      const fedLong = step(1)?.fed.some(({ sequence }) => sequence === long) ?? false;
      if (fedLong) waits.push(waited);
      waited = fedLong ? 0 : waited + 1;
    }
    assert.ok(Math.max(...waits) <= 3, `waited ${waits}`);
    assert.ok(Math.max(...waits) > 0, "a costly prompt should let decodes go first");
  });

  it("feeds a sequence once a step, even if a chunk ends one token before its prompt", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 2, sequenceTokens: 200 },
      limits: { maxDecodeStepsBeforePrefill: 1, decodeSlowdown: 1.01 },
    });
    scheduler.add(createSequence({ prompt: 40, maxNewTokens: 100 }));
    step(4000);
    step(1);
    const prompt = createSequence({ prompt: 33, maxNewTokens: 2, seed: 2 });
    scheduler.add(prompt);
    const fed = [];
    while (prompt.state !== "finished") fed.push(...(step(1)?.fed ?? []).filter(({ sequence }) => sequence === prompt));
    assert.deepEqual(
      fed.map(({ from, to }) => [from, to]),
      [
        [0, 32],
        [32, 33],
        [33, 34],
      ],
    );
  });

  it("feeds due prompts even if a step has room for one chunk only", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 3, sequenceTokens: 300 },
      limits: { maxBatchTokens: 32, maxDecodeStepsBeforePrefill: 2 },
    });
    for (const seed of [1, 2]) scheduler.add(createSequence({ prompt: 8, maxNewTokens: 200, seed }));
    step();
    step();
    const prompt = createSequence({ prompt: 100, maxNewTokens: 1, seed: 3 });
    scheduler.add(prompt);
    for (let i = 0; i < 20 && prompt.state !== "finished"; i++) step();
    assert.equal(prompt.state, "finished");
  });

  it("holds decodes back until a group of short prompts is fed, so that all decode together", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 16, sequenceTokens: 300, maxBatchTokens: 512 },
      limits: { maxBatchTokens: 512, maxStepMs: 106 },
    });
    const first = createSequence({ prompt: 32, maxNewTokens: 100, ignoreEos: true });
    scheduler.add(first);
    step(32); // 1 ms per prompt token
    step(10); // the duration of every later step
    const made = first.total;
    const crowd = Array.from({ length: 10 }, (_, seed) => createSequence({ prompt: 32, maxNewTokens: 9, seed }));
    for (const sequence of crowd) scheduler.add(sequence);
    let steps = 0;
    while (crowd.some(({ computed }) => computed < 32)) {
      const fed = step(10 + 96)?.fed ?? [];
      assert.ok(fed.length <= 3, "prompts alone: no sequence decodes");
      steps++;
    }
    assert.equal(steps, 4);
    assert.equal(first.total, made);
    assert.equal(step(20)?.fed.length, 11, "then all decode");
  });

  it("holds decodes back no longer than the group's share allows, even if prompts keep arriving", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 64, sequenceTokens: 300, maxBatchTokens: 512 },
      limits: { maxBatchTokens: 512, maxStepMs: 100, maxQueue: 100 },
    });
    const first = createSequence({ prompt: 32, maxNewTokens: 100, ignoreEos: true });
    scheduler.add(first);
    step(32);
    step(10);
    const made = first.total;
    let heldMs = 0;
    for (let seed = 0; first.total === made; seed += 3) {
      for (let i = 0; i < (seed === 0 ? 8 : 3); i++) {
        scheduler.add(createSequence({ prompt: 32, maxNewTokens: 9, seed: seed + i }));
      }
      step(96);
      heldMs += 96;
    }
    assert.ok(heldMs >= 200 && heldMs <= 800, `${heldMs} ms`);
  });

  it("starts a group of more than thirty together", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 32, sequenceTokens: 300, maxBatchTokens: 512 },
      limits: { maxBatchTokens: 512, maxStepMs: 100 },
    });
    const first = createSequence({ prompt: 32, maxNewTokens: 100, ignoreEos: true });
    scheduler.add(first);
    step(32); // 1 ms per prompt token
    step(10);
    const made = first.total;
    const crowd = Array.from({ length: 31 }, (_, seed) => createSequence({ prompt: 64, maxNewTokens: 9, seed }));
    for (const sequence of crowd) scheduler.add(sequence);
    while (crowd.some(({ computed }) => computed < 64)) step(({ tokenCount }) => tokenCount);
    assert.equal(first.total, made);
    assert.equal(step(20)?.fed.length, 32);
  });

  it("ends a lone prompt in one step if little of it would be left for the next", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 4, sequenceTokens: 600, maxBatchTokens: 256 },
      limits: { maxStepMs: 64 },
    });
    const run = (prompt: number, seed: number) => {
      const sequence = createSequence({ prompt, maxNewTokens: 1, seed });
      scheduler.add(sequence);
      const fed: number[] = [];
      while (sequence.state !== "finished") fed.push(step(({ tokenCount }) => tokenCount)?.tokenCount ?? 0);
      return fed;
    };
    run(32, 1); // 1 ms per prompt token
    assert.deepEqual(run(120, 2), [120]);
    assert.deepEqual(run(150, 3), [64, 86]);
  });

  it("does not hold decodes back for prompts that take too long", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 16, sequenceTokens: 1000, maxBatchTokens: 512 },
      limits: { maxBatchTokens: 512, maxStepMs: 100 },
    });
    const first = createSequence({ prompt: 32, maxNewTokens: 100, ignoreEos: true });
    scheduler.add(first);
    step(32);
    step(10);
    for (let seed = 0; seed < 10; seed++) scheduler.add(createSequence({ prompt: 900, maxNewTokens: 9, seed }));
    for (let i = 0; i < 8; i++) assert.ok(step(96)?.fed.some(({ sequence }) => sequence === first));
  });

  it("feeds short prompts before a long one ends", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 4, sequenceTokens: 600, maxBatchTokens: 256 },
      limits: { maxStepMs: 32 },
    });
    scheduler.add(createSequence({ prompt: 32, maxNewTokens: 1 }));
    step(32); // 1 ms per prompt token, so every step has room for one chunk of 32
    const long = createSequence({ prompt: 512, maxNewTokens: 1 });
    const short = createSequence({ prompt: 20, maxNewTokens: 1, seed: 2 });
    scheduler.add(long);
    scheduler.add(short);
    for (let i = 0; i < 3 && short.state !== "finished"; i++) step(32);
    assert.equal(short.state, "finished");
    assert.ok(long.computed <= 64, `${long.computed} tokens of the long one went first`);
    for (let i = 0; i < 16; i++) step(32);
    assert.equal(long.state, "finished", "the long one gets every other step");
  });

  it("ends at an end-of-generation token and leaves it out, unless ignoreEos is set", () => {
    const prompt = createSequence({ prompt: 8 });
    const first = fakeNextToken([...prompt.tokens.subarray(0, 8)], 64);
    for (const ignoreEos of [false, true]) {
      const { scheduler, step } = createScheduler({ engine: { endOfGeneration: [first] } });
      const sequence = createSequence({ prompt: 8, maxNewTokens: 4, ignoreEos });
      scheduler.add(sequence);
      const ended = step()?.ended.map(({ finish }) => finish);
      assert.deepEqual(ended, ignoreEos ? [] : ["stop"]);
      assert.equal(sequence.total, ignoreEos ? 9 : 8);
    }
  });

  it("frees the slot of a sequence cancelled in the middle of its prompt before the next step", () => {
    const { scheduler, engine, step } = createScheduler({ limits: { maxPrefillChunkTokens: 32 } });
    const sequence = createSequence({ prompt: 100 });
    scheduler.add(sequence);
    step();
    assert.equal(engine.cache.size, 1);
    scheduler.cancel(sequence);
    scheduler.checkIntegrity();
    assert.equal(engine.cache.size, 0);
    assert.equal(step(), null);
  });

  it("cancels waiting and finished sequences", () => {
    const { scheduler, step } = createScheduler({ engine: { maxSequences: 1 } });
    const [running, waiting] = [createSequence({ seed: 1 }), createSequence({ seed: 2 })];
    scheduler.add(running);
    scheduler.add(waiting);
    step();
    scheduler.cancel(waiting);
    assert.equal(scheduler.statistics.waiting, 0);
    while (step());
    scheduler.cancel(running);
    scheduler.cancel(running);
    scheduler.checkIntegrity();
  });

  it("does not run a paused sequence, and resumes it where it stopped", () => {
    const { scheduler, step } = createScheduler();
    const [paused, other] = [
      createSequence({ maxNewTokens: 6, seed: 1 }),
      createSequence({ maxNewTokens: 6, seed: 2 }),
    ];
    scheduler.add(paused);
    scheduler.add(other);
    step();
    scheduler.setPaused(paused, true);
    const total = paused.total;
    step();
    step();
    assert.equal(paused.total, total);
    assert.equal(other.total, total + 2);
    scheduler.setPaused(paused, false);
    while (step());
    assert.equal(paused.state, "finished");
  });

  it("has nothing to run while everything is paused", () => {
    const { scheduler, step } = createScheduler();
    const sequence = createSequence();
    scheduler.add(sequence);
    step();
    scheduler.setPaused(sequence, true);
    assert.equal(step(), null);
  });

  it("gives a new sequence the lowest free slot", () => {
    const { scheduler, step } = createScheduler({ engine: { maxSequences: 4 } });
    const sequences = Array.from({ length: 4 }, (_, i) => createSequence({ maxNewTokens: 50, seed: i }));
    for (const sequence of sequences) scheduler.add(sequence);
    step();
    scheduler.cancel(sequences[2] as Sequence);
    scheduler.cancel(sequences[1] as Sequence);
    const next = createSequence({ seed: 9 });
    scheduler.add(next);
    step();
    assert.equal(next.slot, 1);
  });

  it("refuses sequences that are too long and empty prompts, each with its own error", () => {
    const { scheduler } = createScheduler({ engine: { sequenceTokens: 16 } });
    assert.throws(
      () => scheduler.add(createSequence({ prompt: 14, maxNewTokens: 3 })),
      hasCode("context_length_exceeded", /14 tokens.*3.*16/),
    );
    assert.throws(() => scheduler.add(createSequence({ prompt: 0 })), hasCode("invalid_value", /empty/));
  });

  it("counts sequences against max_queue only if no free slot is ahead of them", () => {
    const { scheduler, step } = createScheduler({ engine: { maxSequences: 2 }, limits: { maxQueue: 1 } });
    const add = () => scheduler.add(createSequence({ maxNewTokens: 100 }));
    for (let i = 0; i < 3; i++) add();
    assert.throws(add, hasCode("queue_full", /max_queue 1/));
    step();
    assert.equal(scheduler.statistics.waiting, 1);
    assert.throws(add, hasCode("queue_full", /max_queue 1/));
  });
});
