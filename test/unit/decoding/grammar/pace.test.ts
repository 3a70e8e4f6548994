import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Pace } from "../../../../engines/decoding/grammar/pace.ts";
import { WorkClock } from "../../../../engines/decoding/grammar/thread/work-clock.ts";

describe("the pace of a matcher", () => {
  it("is in time until a mask is late, and again when one takes less than that wait", () => {
    const pace = new Pace(0);
    assert.ok(pace.isInTime);
    pace.ask(5, 5, 100);
    pace.miss(130);
    assert.ok(!pace.isInTime, "the answer is still due");
    pace.ask(40, 40, 150);
    assert.ok(!pace.isInTime, "30 ms were too little for the last one");
    pace.ask(20, 20, 200);
    assert.ok(pace.isInTime);
  });

  it("is slow if one mask, or many, take more than a quarter of the time", () => {
    const steady = new Pace(0);
    for (let at = 20; at < 20_000; at += 20) steady.ask(4, 4, at);
    assert.equal(steady.loadMs, 0);
    const greedy = new Pace(0);
    for (let at = 20; at <= 600; at += 20) greedy.ask(15, 15, at);
    assert.ok(greedy.loadMs > 250 && greedy.loadMs < 350);
    greedy.ask(0, 0, 3000);
    assert.equal(greedy.loadMs, 0);
    const sudden = new Pace(0);
    sudden.ask(400, 400, 400);
    assert.ok(sudden.loadMs > 250);
  });

  it("adds up only the time of slow masks", () => {
    const pace = new Pace(0);
    for (let i = 1; i <= 1000; i++) pace.ask(2, 2, i * 10);
    assert.equal(pace.slowMs, 0);
    pace.ask(120, 120, 11_000);
    pace.ask(70, 70, 12_000);
    assert.equal(pace.slowMs, 150);
  });

  it("is not slow on a busy machine, where masks take long and little processor time", () => {
    const pace = new Pace(0);
    for (let i = 1; i <= 1000; i++) pace.ask(300, 0.05, i * 300);
    assert.deepEqual([pace.slowMs, pace.loadMs], [0, 0]);
    pace.miss(300_010);
    pace.ask(300, 0.05, 300_300);
    assert.ok(!pace.isInTime, "the mask is late all the same");
  });
});

describe("the clock of a grammar thread's work", () => {
  it("tells the processor time of a piece of work, which is at most its duration", () => {
    let nowMs = 100;
    const clock = new WorkClock(() => nowMs);
    nowMs = 101;
    assert.equal(clock.lap(300), 1, "a wait for a processor core");
    nowMs = 301;
    assert.equal(clock.lap(250), 200);
    nowMs = 400;
    assert.equal(clock.lap(30), 30, "quick work before it");
    nowMs = 500;
    assert.equal(clock.read(), 500);
    nowMs = 520;
    assert.equal(clock.lap(60), 20, "after a compilation");
    nowMs = 0;
    assert.equal(clock.lap(60), 0);
  });
});
