import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Pace } from "../../../../engines/decoding/grammar/pace.ts";

describe("the pace of a matcher", () => {
  it("is in time until a mask is late, and again when one takes less than that wait", () => {
    const pace = new Pace(0);
    assert.ok(pace.isInTime);
    pace.ask(5, 100);
    pace.miss(130);
    assert.ok(!pace.isInTime, "the answer is still due");
    pace.ask(40, 150);
    assert.ok(!pace.isInTime, "30 ms were too little for the last one");
    pace.ask(20, 200);
    assert.ok(pace.isInTime);
  });

  it("is slow if one mask, or many, take more than a quarter of the time", () => {
    const steady = new Pace(0);
    for (let at = 20; at < 20_000; at += 20) steady.ask(4, at);
    assert.equal(steady.loadMs, 0);
    const greedy = new Pace(0);
    for (let at = 20; at <= 600; at += 20) greedy.ask(15, at);
    assert.ok(greedy.loadMs > 250 && greedy.loadMs < 350);
    greedy.ask(0, 3000);
    assert.equal(greedy.loadMs, 0);
    const sudden = new Pace(0);
    sudden.ask(400, 400);
    assert.ok(sudden.loadMs > 250);
  });

  it("adds up only the time of slow masks", () => {
    const pace = new Pace(0);
    for (let i = 1; i <= 1000; i++) pace.ask(2, i * 10);
    assert.equal(pace.slowMs, 0);
    pace.ask(120, 11_000);
    pace.ask(70, 12_000);
    assert.equal(pace.slowMs, 150);
  });
});
