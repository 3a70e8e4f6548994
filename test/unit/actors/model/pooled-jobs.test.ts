import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { PoolJob } from "../../../../actors/messages.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

const queueTimeoutMs = 30;

/** Returns a loop whose only slot is held by a sequence of another client. */
function createBusyLoop(limits: Partial<SchedulerLimits>) {
  const loop = new StepLoop(createFakeEngine({ maxSequences: 1 }), {
    limits: { ...generousLimits, ...limits },
    frameIntervalMs: 0,
  });
  const [frames, other] = [new Frames(), new Frames()];
  loop.submit(other, [job(1, { client: "other", maxNewTokens: 100 })]);
  loop.step();
  const pool = (id: number, changes: Partial<PoolJob>) => {
    const prompts = [Int32Array.of(id), Int32Array.of(2 * id), Int32Array.of(3 * id)];
    return loop.pool(frames, {
      id,
      job: { client: "pool", prompts, adapter: 0, priority: 0, hasBegun: false, ...changes },
    });
  };
  return { loop, frames, other, pool };
}

describe("a pooled job of a request that has begun", () => {
  it("waits while the queue is full, gets the next place, and is computed", async () => {
    const { loop, other, pool } = createBusyLoop({ maxQueue: 1 });
    loop.submit(other, [job(2, { client: "other", maxNewTokens: 5 })]);
    await assert.rejects(pool(1, {}), { code: "queue_full" });
    const values = pool(2, { hasBegun: true });
    loop.cancel(other, [1]);
    loop.step();
    assert.throws(() => loop.submit(other, [job(3, { client: "third" })]), { code: "queue_full" });
    while (loop.step());
    assert.deepEqual([...(await values)], [2, 4, 6]);
  });

  it("can be cancelled while it waits for the queue, and is failed when the loop stops", async () => {
    const { loop, frames, pool } = createBusyLoop({ maxQueue: 0 });
    const [cancelled, stopped] = [pool(1, { hasBegun: true }), pool(2, { hasBegun: true })];
    const results = Promise.all([
      assert.rejects(cancelled, { code: "peer_gone" }),
      assert.rejects(stopped, { code: "model_failed" }),
    ]);
    loop.cancel(frames, [1]);
    loop.stop();
    await results;
  });

  it("keeps its place in the queue when another client needs one", async () => {
    const { loop, pool } = createBusyLoop({ maxQueue: 2 });
    const values = [pool(1, { hasBegun: true }), pool(2, { hasBegun: true })];
    assert.throws(() => loop.submit(new Frames(), [job(2, { client: "third" })]), { code: "queue_full" });
    while (loop.step());
    for (const one of values) await one;
  });

  it("has no queue timeout", async () => {
    const { loop, pool } = createBusyLoop({ queueTimeoutMs });
    const values = pool(1, { hasBegun: true });
    const first = pool(2, {});
    await sleep(2 * queueTimeoutMs);
    loop.step();
    await assert.rejects(first, { code: "queue_timeout" });
    while (loop.step());
    assert.deepEqual([...(await values)], [1, 2, 3]);
  });
});
