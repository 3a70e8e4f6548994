import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { CompiledGrammar } from "../../../../engines/decoding/grammar/matcher.ts";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import { createFakeEngine, type FakeEngineOptions } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

function createLoop(engine: FakeEngineOptions, limits: Partial<SchedulerLimits>) {
  const loop = new StepLoop(createFakeEngine(engine), { limits: { ...generousLimits, ...limits }, frameIntervalMs: 0 });
  return { loop, many: new Frames(), one: new Frames() };
}

const failures = (frames: Frames) =>
  frames.all.flatMap(({ failed }) => failed.map(({ id, error }) => [id, error.code]));

describe("a step loop whose queue is full", () => {
  it("fails the choices of a displaced request with queue_full, and queues the other client's", () => {
    const { loop, many, one } = createLoop({ maxSequences: 1 }, { maxQueue: 3 });
    loop.submit(many, [job(1, { maxNewTokens: 40 })]);
    loop.step();
    loop.submit(many, [job(2)]);
    loop.submit(many, [job(3), job(4, { choice: 1 })]);
    loop.submit(one, [job(1, { client: "one" })]);
    assert.deepEqual(failures(many).sort(), [
      [3, "queue_full"],
      [4, "queue_full"],
    ]);
    assert.match(many.all.at(-1)?.failed[0]?.error.message ?? "", /max_queue 3 .* another client/);
    while (loop.step());
    assert.deepEqual([...new Set(many.rows.map(({ id }) => id))], [1, 2]);
    assert.equal(one.rows.length, 4);
    assert.equal(loop.snapshot().ended.error, 2);
  });

  it("fails a preempted answer with reader_stalled when another client takes its place", () => {
    const { loop, many, one } = createLoop({ maxSequences: 1 }, { maxQueue: 2 });
    for (const id of [1, 2, 3]) {
      loop.submit(many, [job(id, { maxNewTokens: 40 })]);
      loop.step();
    }
    loop.setPaused(many, [1, 2, 3], true);
    loop.submit(one, [job(1, { client: "one" })]);
    assert.deepEqual(failures(many), [[3, "reader_stalled"]]);
    assert.match(many.all.at(-1)?.failed[0]?.error.message ?? "", /max_queue 2 .* another client/);
  });

  it("displaces no sequence for a request that cannot be queued", () => {
    const { loop, many, one } = createLoop({ maxSequences: 1 }, { maxQueue: 2 });
    loop.submit(many, [job(1, { maxNewTokens: 40 })]);
    loop.step();
    loop.submit(many, [job(2)]);
    loop.submit(many, [job(3)]);
    const tooLong = [job(1, { client: "one" }), job(2, { client: "one", choice: 1, length: 1000 })];
    assert.throws(() => loop.submit(one, tooLong), { code: "context_length_exceeded" });
    assert.deepEqual(failures(many), []);
    loop.submit(one, [job(1, { client: "one" })]);
    assert.deepEqual(failures(many), [[3, "queue_full"]]);
  });

  it("has no more matchers open than places in the queue, and still queues a new request with a grammar", () => {
    const { loop, many, one } = createLoop({ maxSequences: 1 }, { maxQueue: 3 });
    const open = new Set<object>();
    const grammar: CompiledGrammar = {
      open: () => {
        assert.ok(open.size < 4, "the host has no matcher left");
        const matcher = {
          param: undefined,
          isReady: true,
          wait: () => true,
          allowed: () => ({ forced: new Int32Array(0), mask: new Int32Array(2).fill(-1) }),
          accept: () => undefined,
          close: () => open.delete(matcher),
        };
        open.add(matcher);
        return matcher;
      },
    };
    const submit = (frames: Frames, client: string, ids: readonly number[]) =>
      loop.submit(
        frames,
        ids.map((id, choice) => job(id, { client, choice })),
        new Map(ids.map((id) => [id, grammar])),
      );
    submit(many, "many", [1]);
    loop.step();
    for (const id of [2, 3, 4]) submit(many, "many", [id]);
    assert.equal(open.size, 4);
    submit(one, "one", [1]);
    assert.deepEqual([failures(many), open.size], [[[4, "queue_full"]], 4]);
    assert.throws(() => submit(many, "many", [5, 6]), { code: "queue_full" });
    assert.equal(open.size, 4);
    while (loop.step());
    assert.deepEqual([one.rows.length, open.size], [4, 0]);
  });

  it("rejects a displaced pooled request once, and lets its client's other requests continue", async () => {
    const { loop, many, one } = createLoop({ maxSequences: 1, sequenceTokens: 256 }, { maxQueue: 4 });
    loop.submit(one, [job(1, { client: "holder", maxNewTokens: 100 })]);
    loop.step();
    const pool = (id: number) =>
      loop.pool(many, {
        id,
        job: { client: "many", prompts: [new Int32Array(10)], adapter: 0, priority: 0, hasBegun: false },
      });
    const pooled = [pool(1), pool(2), pool(3), pool(4)];
    const newest = assert.rejects(pooled[3] as Promise<unknown>, { code: "queue_full" });
    loop.submit(one, [job(2, { client: "one" })]);
    await newest;
    const later = loop.pool(many, {
      id: 5,
      job: { client: "two", prompts: [new Int32Array(10)], adapter: 0, priority: 0, hasBegun: false },
    });
    await assert.rejects(pooled[2] as Promise<unknown>, { code: "queue_full" });
    while (loop.step());
    for (const answer of [pooled[0], pooled[1], later]) assert.equal((await answer)?.length, 1);
  });
});

describe("a step loop whose slots all belong to one client", () => {
  it("gives one of them to another client that has waited, and the preempted answer keeps its text", async () => {
    const { loop, many, one } = createLoop({ maxSequences: 2, sequenceTokens: 60_000 }, { slotShareMs: 50 });
    const running = loop.run();
    const long = { client: "many", maxNewTokens: 50_000 };
    loop.submit(many, [job(1, long), job(2, long)]);
    await sleep(20);
    loop.submit(one, [job(1, { client: "one" })]);
    for (let i = 0; i < 200 && one.rows.length < 4; i++) await sleep(10);
    assert.equal(one.rows.length, 4);
    assert.equal(loop.snapshot().sharePreemptions, 1);
    const before = many.rows.filter(({ id }) => id === 2).length;
    for (let i = 0; i < 200 && loop.snapshot().running < 2; i++) await sleep(10);
    await sleep(50);
    assert.ok(many.rows.filter(({ id }) => id === 2).length > before, "it does not go on");
    loop.stop();
    await running;
  });
});
