import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type ModelStatistics, rowFinishedLength, rowHasLogprobs, rowInts } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { Batch } from "../../../../engines/batch.ts";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import { pauseGraceMs } from "../../../../engines/decoding/scheduler/scheduler.ts";
import { greedySampling } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { settled } from "../../../fixtures/fakes/fake-clock.ts";
import { createFakeEngine, type FakeEngineOptions } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { crossed, Frames, job } from "../generation/rig.ts";

const pick = ({ slots, running, waiting, preempted: parked, preemptions }: ModelStatistics) => {
  return { slots, running, waiting, parked, preemptions };
};

const longInterval = 1e9;

function createLoop(
  options: { engine?: FakeEngineOptions; limits?: Partial<SchedulerLimits>; intervalMs?: number } = {},
) {
  const engine = createFakeEngine(options.engine);
  const loop = new StepLoop(engine, {
    limits: { ...generousLimits, ...options.limits },
    frameIntervalMs: options.intervalMs ?? 0,
  });
  return { engine, loop, frames: new Frames() };
}

function hasCode(code: string) {
  return (error: unknown) => error instanceof ServerError && error.code === code;
}

describe("the step loop", () => {
  it("gives every token of a sequence, in order, the last one flagged", () => {
    const { loop, frames, engine } = createLoop();
    loop.submit(frames, [job(7, { maxNewTokens: 5 })]);
    while (loop.step());
    assert.deepEqual(
      frames.rows.map(({ id }) => id),
      [7, 7, 7, 7, 7],
    );
    assert.deepEqual(
      frames.rows.map(({ flags }) => (flags & rowFinishedLength) !== 0),
      [false, false, false, false, true],
    );
    assert.equal(engine.cache.size, 0);
  });

  it("accepts all jobs of a request or none", () => {
    const { loop, frames } = createLoop({ engine: { maxSequences: 1 }, limits: { maxQueue: 2 } });
    loop.submit(frames, [job(1)]);
    assert.throws(() => loop.submit(frames, [job(2), job(3), job(4)]), hasCode("queue_full"));
    assert.throws(() => loop.submit(frames, [job(5), job(1)]), hasCode("conflict"));
    assert.throws(() => loop.submit(frames, [job(6), job(7, { length: 1000 })]), hasCode("context_length_exceeded"));
    while (loop.step());
    assert.deepEqual([...new Set(frames.rows.map(({ id }) => id))], [1]);
  });

  it("sends the tokens of a sequence only to its own subscriber, even if ids are equal", () => {
    const { loop, frames } = createLoop();
    const other = new Frames();
    loop.submit(frames, [job(1, { maxNewTokens: 3 })]);
    loop.submit(other, [job(1, { maxNewTokens: 6 })]);
    loop.cancel(other, [99]);
    while (loop.step());
    assert.deepEqual([frames.rows.length, other.rows.length], [3, 6]);
  });

  it("runs a waiting sequence when the paused one with the slot is cancelled or its subscriber disconnects", async () => {
    for (const end of ["cancel", "drop"] as const) {
      const { loop, frames } = createLoop({ engine: { maxSequences: 1 } });
      const other = new Frames();
      const running = loop.run();
      loop.submit(other, [job(1, { maxNewTokens: 100 })]);
      await settled();
      loop.setPaused(other, [1], true);
      loop.submit(frames, [job(2)]);
      await crossed();
      assert.equal(frames.rows.length, 0, "a short pause costs no slot");
      if (end === "cancel") loop.cancel(other, [1]);
      else loop.drop(other);
      await crossed();
      loop.stop();
      await running;
      assert.equal(frames.rows.length, 4, end);
    }
  });

  it("waits without spinning while everything is paused, and resumes where it stopped", async () => {
    const { loop, frames } = createLoop();
    const running = loop.run();
    loop.submit(frames, [job(1, { maxNewTokens: 100 })]);
    await crossed();
    loop.setPaused(frames, [1], true);
    await crossed();
    const { steps } = loop.snapshot();
    assert.ok(steps > 0 && steps < 100);
    await crossed();
    assert.equal(loop.snapshot().steps, steps);
    loop.setPaused(frames, [1], false);
    for (let i = 0; i < 20; i++) await crossed();
    loop.stop();
    await running;
    assert.equal(frames.rows.length, 100);
  });

  it("fails every sequence of every subscriber once when the engine fails, and ends", async () => {
    let steps = 0;
    const onStep = () => {
      if (++steps === 3) throw new ServerError("model_failed", "the engine broke");
    };
    const { loop, frames, engine } = createLoop({ engine: { onStep, maxSequences: 2 } });
    const other = new Frames();
    loop.submit(frames, [job(1, { maxNewTokens: 50 }), job(2, { maxNewTokens: 50 })]);
    loop.submit(other, [job(1)]);
    await assert.rejects(loop.run(), hasCode("model_failed"));
    const failedIds = (from: Frames) => from.all.flatMap(({ failed }) => failed.map(({ id }) => id));
    assert.deepEqual(failedIds(frames), [1, 2]);
    assert.deepEqual(failedIds(other), [1]);
    assert.equal(other.all[0]?.failed[0]?.error.code, "model_failed");
    assert.equal(engine.cache.size, 0);
  });

  it("cancels everything when stopped", async () => {
    const { loop, frames, engine } = createLoop({ engine: { maxSequences: 1 } });
    const running = loop.run();
    loop.submit(frames, [job(1, { maxNewTokens: 100 }), job(2)]);
    await crossed();
    loop.stop();
    await running;
    assert.equal(engine.cache.size, 0);
    assert.equal(loop.step(), false);
  });
});

describe("a step loop that waits", () => {
  it("gives a paused sequence's slot to a waiting one, even if no message arrives", async () => {
    const { loop, frames } = createLoop({ engine: { maxSequences: 1 } });
    const running = loop.run();
    loop.submit(frames, [job(1, { maxNewTokens: 100 })]);
    await settled();
    loop.setPaused(frames, [1], true);
    loop.submit(frames, [job(2, { client: "other" })]);
    await sleep(2 * pauseGraceMs);
    assert.equal(frames.rows.filter(({ id }) => id === 2).length, 4);
    assert.deepEqual(pick(loop.snapshot()), { slots: 1, running: 0, waiting: 0, parked: 1, preemptions: 1 });
    const before = frames.rows.filter(({ id }) => id === 1).length;
    loop.setPaused(frames, [1], false);
    for (let i = 0; i < 20; i++) await crossed();
    assert.ok(before < 100);
    assert.equal(frames.rows.filter(({ id }) => id === 1).length, 100);
    loop.stop();
    await running;
  });

  it("fails a request with queue_timeout, even if nothing runs", async () => {
    const { loop, frames, engine } = createLoop({ engine: { maxSequences: 1 }, limits: { queueTimeoutMs: 30 } });
    const running = loop.run();
    loop.submit(frames, [job(1, { maxNewTokens: 100 })]);
    await settled();
    loop.setPaused(frames, [1], true);
    loop.submit(frames, [job(2), job(3, { choice: 1 })]);
    await sleep(60);
    const failed = frames.all.flatMap((frame) => frame.failed);
    assert.deepEqual(
      failed.map(({ id, error }) => [id, error.code]),
      [[2, "queue_timeout"]],
    );
    assert.match(failed[0]!.error.message, /queue_timeout_secs/);
    loop.stop();
    await running;
    assert.equal(engine.cache.size, 0);
  });
});

describe("the frames of a step loop", () => {
  it("delay tokens of short steps, but never a first or a last one", () => {
    const { loop, frames } = createLoop({ intervalMs: longInterval });
    loop.submit(frames, [job(1, { maxNewTokens: 6 })]);
    while (loop.step());
    assert.deepEqual(
      frames.all.map(({ rows }) => rows.length / rowInts),
      [1, 5],
    );
  });

  it("are sent before a step with a prompt", () => {
    const heldAtPrompts: number[] = [];
    const onStep = (batch: Batch) => {
      const hasPrompt = batch.tokenCount > batch.rowCount;
      if (hasPrompt) heldAtPrompts.push(loop.snapshot().tokens - frames.rows.length);
    };
    const { loop, frames } = createLoop({ intervalMs: longInterval, engine: { onStep } });
    loop.submit(frames, [job(1, { maxNewTokens: 50 })]);
    for (let i = 0; i < 4; i++) loop.step();
    assert.equal(frames.rows.length, 1, "the others are held");
    loop.submit(frames, [job(2, { length: 20 })]);
    while (loop.step());
    assert.deepEqual(heldAtPrompts, [0, 0]);
  });

  it("are sent when their buffer is full", () => {
    const { loop, frames } = createLoop({ intervalMs: longInterval, engine: { maxSequences: 2, extraLogitsRows: 0 } });
    loop.submit(frames, [job(1, { maxNewTokens: 60 }), job(2, { maxNewTokens: 60 })]);
    while (loop.step());
    assert.equal(frames.rows.length, 120);
    assert.ok(frames.all.length > 5 && frames.all.length < 20, `${frames.all.length} frames`);
  });

  it("carry the logprobs of the rows that are flagged, in their order", () => {
    const { loop, frames } = createLoop({ intervalMs: longInterval });
    loop.submit(frames, [job(1), job(2, { sampling: { ...greedySampling, topLogprobs: 2 } }), job(3)]);
    while (loop.step());
    for (const { rows, logprobs } of frames.all) {
      const flagged = [];
      for (let at = 0; at < rows.length; at += rowInts) if (rows[at + 2]! & rowHasLogprobs) flagged.push(at);
      // Each record has 6 numbers: the chosen token, a count and two pairs. Greedy sampling chooses the most likely token,
      // which comes first.
      assert.equal(logprobs?.length ?? 0, flagged.length * 6);
      flagged.forEach((at, i) => {
        assert.equal(rows[at], 2);
        assert.equal(logprobs![i * 6 + 1], 2);
        assert.equal(logprobs![i * 6 + 2], rows[at + 1]);
        assert.equal(logprobs![i * 6], logprobs![i * 6 + 3]);
      });
    }
  });
});
