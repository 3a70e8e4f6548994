// Simulated fleet: for one or two requests, the durations can be computed by hand.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Ask } from "../../../bench/fleet/replica.ts";
import { routers } from "../../../bench/fleet/routing.ts";
import { type FleetSettings, simulate } from "../../../bench/fleet/simulate.ts";
import { parseStepTimes } from "../../../bench/fleet/step-times.ts";

const settings: FleetSettings = {
  replicas: 1,
  slots: 2,
  maxQueue: 1,
  times: parseStepTimes("1:10,2:12/1/5"),
  router: roundRobin(),
  sharing: null,
};
const ask: Ask = { client: "a", conversation: 0, turn: 0, sentMs: 100, promptTokens: 50, newTokens: 4 };

describe("a simulated fleet", () => {
  it("answers a request after its prompt and its decode steps", () => {
    const { done } = simulate(settings, [ask]);
    // 5 ms to the engine, 50 ms for the prompt, 5 ms to the client; then three decode steps.
    assert.deepEqual(
      done.map(({ firstTokenMs, endMs }) => [firstTokenMs, endMs]),
      [[160, 190]],
    );
  });

  it("lets replicas of one machine share its cores", () => {
    const both = [ask, { ...ask, client: "b", conversation: 1 }];
    const endOf = (atOnce: number) =>
      simulate({ ...settings, replicas: 2, router: roundRobin(), sharing: { replicas: 2, steps: atOnce } }, both).endMs;
    assert.equal(endOf(2), 185);
    assert.equal(endOf(1), 265);
  });

  it("finds the previous turn only in the cache of the same replica", () => {
    const turns = (name: string) =>
      simulate({ ...settings, replicas: 2, router: router(name) }, [ask], ({ ask: one, endMs }) =>
        one.turn === 0 ? { ...one, turn: 1, sentMs: endMs + 1000, promptTokens: 80 } : null,
      ).done.map(({ cachedTokens }) => cachedTokens);
    // 53 = 50 prompt tokens + 4 new tokens - 1, because the last token of a response is never computed.
    assert.deepEqual(turns("hash"), [0, 53]);
    assert.deepEqual(turns("round-robin"), [0, 0]);
  });

  it("rejects requests that do not fit in the queue", () => {
    const many = Array.from({ length: 5 }, (_, i) => ({ ...ask, conversation: i }));
    const { done, refused } = simulate(settings, many);
    assert.deepEqual([done.length, refused], [3, 2]);
  });

  it("sends a request to the replica with the fewest requests", () => {
    const fewest = router("least-connections");
    assert.equal(fewest(ask, [{ outstanding: 2 }, { outstanding: 0 }, { outstanding: 1 }]), 1);
    assert.equal(fewest(ask, [{ outstanding: 0 }, { outstanding: 0 }, { outstanding: 0 }]), 2);
  });

  it("rejects step times that are not numbers", () => {
    assert.throws(() => parseStepTimes("1:6,8:x/0.9"), /--step-times expects/);
    assert.throws(() => parseStepTimes("1:6/0.9"), /--step-times expects/);
  });
});

function roundRobin() {
  return router("round-robin");
}

function router(name: string) {
  const create = routers[name];
  assert.ok(create);
  return create();
}
