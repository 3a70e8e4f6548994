import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LatencyCounts } from "../../../../actors/api/engine-metric.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { firstTokenBounds, interTokenBounds, StreamLatencies } from "../../../../actors/model/stream-latency.ts";
import { createFakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";
import { Frames, job } from "../generation/rig.ts";

const chat = "/v1/chat/completions";

/** Returns the number of observations by the upper bound of their bucket. */
function byBound({ counts }: LatencyCounts, bounds: readonly number[]): Record<string, number | undefined> {
  assert.equal(counts.length, bounds.length + 1);
  return Object.fromEntries([...bounds, "above"].flatMap((le, i) => (counts[i] === 0 ? [] : [[le, counts[i]]])));
}

function only(latencies: StreamLatencies) {
  const [series] = latencies.snapshot();
  return series!;
}

describe("the latencies of streams", () => {
  it("count the wait for the first token from the request's arrival, then from token to token", () => {
    const latencies = new StreamLatencies();
    const clock = latencies.open(chat, 300, 1000);
    clock.took(1, 1150);
    clock.took(1, 1180);
    clock.took(1, 1300);
    const { series, firstToken, interToken } = only(latencies);
    assert.equal(series, chat);
    assert.deepEqual(byBound(firstToken, firstTokenBounds), { 0.5: 1 });
    assert.ok(Math.abs(firstToken.sumSeconds - 0.45) < 1e-9);
    assert.deepEqual(byBound(interToken, interTokenBounds), { 0.03: 1, 0.15: 1 });
    assert.ok(Math.abs(interToken.sumSeconds - 0.15) < 1e-9);
  });

  it("divide the time since the last step among the tokens of a step, but not the time to the first", () => {
    const latencies = new StreamLatencies();
    const clock = latencies.open(chat, 0, 0);
    clock.took(3, 10);
    clock.took(4, 50);
    const { firstToken, interToken } = only(latencies);
    assert.deepEqual(byBound(firstToken, firstTokenBounds), { 0.01: 1 });
    assert.deepEqual(byBound(interToken, interTokenBounds), { 0.01: 4 });
    assert.ok(Math.abs(interToken.sumSeconds - 0.04) < 1e-9);
  });

  it("do not count the time while a reader is behind, except before the first token", () => {
    const latencies = new StreamLatencies();
    const clock = latencies.open(chat, 0, 0);
    clock.pause();
    clock.took(1, 2000);
    clock.pause();
    clock.took(1, 9000);
    clock.took(1, 9020);
    const { firstToken, interToken } = only(latencies);
    assert.deepEqual(byBound(firstToken, firstTokenBounds), { 2: 1 });
    assert.deepEqual(byBound(interToken, interTokenBounds), { 0.02: 1 });
  });

  it("count a value on a bound in its bucket, one above all bounds in the last, and a clock set back as zero", () => {
    const latencies = new StreamLatencies();
    latencies.open(chat, firstTokenBounds[0] * 1000, 0).took(1, 0);
    latencies.open(chat, 1e9, 0).took(1, 0);
    latencies.open(chat, -5000, 0).took(1, 0);
    assert.deepEqual(byBound(only(latencies).firstToken, firstTokenBounds), { [firstTokenBounds[0]]: 2, above: 1 });
  });

  it("keep series apart, and limit their number", () => {
    const latencies = new StreamLatencies();
    for (let i = 0; i < 1000; i++) latencies.open(`/${i}`, 0, 0).took(1, 20);
    const snapshot = latencies.snapshot();
    assert.equal(snapshot.length, 33);
    assert.equal(snapshot.at(-1)!.series, "<other>");
    const count = ({ counts }: LatencyCounts) => counts.reduce((sum, each) => sum + each);
    assert.deepEqual(
      [snapshot[0]!, snapshot.at(-1)!].map(({ firstToken }) => count(firstToken)),
      [1, 1000 - 32],
    );
  });

  it("are counted by the step loop for the sequences whose jobs name a series, and for no others", () => {
    const engine = createFakeEngine({ maxSequences: 4 });
    const loop = new StepLoop(engine, { limits: generousLimits, frameIntervalMs: 0 });
    const frames = new Frames();
    const receivedAt = Date.now() - 30_000;
    loop.submit(frames, [
      job(1, { maxNewTokens: 5, series: chat, receivedAt }),
      job(2, { maxNewTokens: 5, choice: 1 }),
      job(3, { maxNewTokens: 3, series: "/v1/messages", receivedAt }),
    ]);
    while (loop.step());
    const seen = loop.snapshot().latencies.map(({ series, firstToken, interToken }) => {
      const count = interToken.counts.reduce((sum, each) => sum + each);
      return [series, byBound(firstToken, firstTokenBounds), count];
    });
    assert.deepEqual(seen, [
      [chat, { 40: 1 }, 4],
      ["/v1/messages", { 40: 1 }, 2],
    ]);
  });
});
