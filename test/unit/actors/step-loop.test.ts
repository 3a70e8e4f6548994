import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StepLoop } from "../../../actors/scheduler/step-loop.ts";
import { rowInts, rowFinishedLength } from "../../../actors/messages.ts";
import { settled } from "../../fixtures/fake-clock.ts";
import { createFakeEngine } from "../../fixtures/fake-engine.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";
import { Frames, job } from "./rig.ts";

describe("probe", () => {
  it("cancel of a paused sequence lets a waiting one run", async () => {
    const loop = new StepLoop(createFakeEngine({ maxSequences: 1 }), generousLimits, 0);
    const running = loop.run();
    const frames = new Frames();
    loop.submit(frames, [job(1, { maxNewTokens: 50 })]);
    await settled();
    loop.setPaused(frames, [1], true);
    loop.submit(frames, [job(2)]);
    await settled(); await settled();
    loop.cancel(frames, [1]);
    for (let i = 0; i < 20; i++) await settled();
    const done = frames.all.some(({ rows }) => { for (let at = 0; at < rows.length; at += rowInts) if (rows[at] === 2 && rows[at + 2]! & rowFinishedLength) return true; return false; });
    loop.stop(); await running;
    assert.ok(done);
  });
  it("queue 1 takes two", () => {
    const loop = new StepLoop(createFakeEngine({ maxSequences: 4 }), { ...generousLimits, maxQueue: 1 }, 0);
    loop.submit(new Frames(), [job(1), job(2)]);
  });
});
