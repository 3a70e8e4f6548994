import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StepTimeModel } from "../../../../engines/decoding/scheduler/step-time-model.ts";

const target = { decodeSlowdown: 3, maxStepMs: 250 };

/** Returns a cost model that has observed steps with these numbers of decode tokens. `ms`: returns the duration of a step. */
function learnt(sizes: readonly number[], ms: (tokens: number) => number, maxTokens = 64): StepTimeModel {
  const cost = new StepTimeModel(maxTokens, target);
  for (const tokens of sizes) cost.observe(tokens, 0, ms(tokens));
  return cost;
}

const line = (tokens: number) => 4 + tokens;

describe("the estimated time of a step", () => {
  it("is unknown before the first step", () => {
    const cost = new StepTimeModel(8, target);
    assert.equal(cost.decodeMs(1), 0);
    assert.equal(cost.mostDecodeTokens, 0);
    assert.equal(cost.promptAllowance(1), null);
    assert.equal(cost.promptMs(10), Infinity);
  });

  it("lies on a line through the measured sizes", () => {
    const cost = learnt([1, 2, 10, 20, 2, 10, 20], line);
    for (const tokens of [1, 2, 6, 15, 20]) {
      assert.ok(Math.abs(cost.decodeMs(tokens) - line(tokens)) < 0.1, `${cost.decodeMs(tokens)} for ${tokens}`);
    }
    assert.equal(cost.mostDecodeTokens, 20);
  });

  it("extends beyond the largest and the smallest step with the slope of the measured ones", () => {
    const cost = learnt([4, 24], line);
    assert.ok(Math.abs(cost.decodeMs(40) - line(40)) < 4, `${cost.decodeMs(40)} for 40`);
    assert.ok(Math.abs(cost.decodeMs(1) - line(1)) < 1, `${cost.decodeMs(1)} for 1`);
    assert.ok(cost.decodeMs(1000) >= cost.decodeMs(64), "more than it has room for is at least as much");
  });

  it("assumes that a decode token costs as much as a prompt token while all steps were of one size", () => {
    const cost = learnt([1], () => 5);
    cost.observe(0, 100, 5 + 110);
    assert.ok(Math.abs(cost.decodeMs(11) - 16) < 0.001, `${cost.decodeMs(11)}`);
  });

  it("never assumes that one more token costs more than its share of a step, whatever prompts took", () => {
    const cost = learnt([8], () => 16);
    cost.observe(0, 1, 500);
    assert.ok(cost.decodeMs(16) <= 32, `${cost.decodeMs(16)}`);
  });

  it("follows steps that become slower, but not a single one that was disturbed", () => {
    const cost = learnt(Array<number>(20).fill(1), () => 5);
    cost.observe(1, 0, 500);
    assert.ok(cost.decodeMs(1) < 7, `${cost.decodeMs(1)} after one of 500 ms`);
    for (let i = 0; i < 40; i++) cost.observe(1, 0, 20);
    assert.ok(Math.abs(cost.decodeMs(1) - 20) < 1, `${cost.decodeMs(1)} after many of 20 ms`);
  });

  it("forgets a size that was measured only once, so that a bad start does not exclude it for ever", () => {
    const cost = learnt([1], () => 5);
    const before = cost.decodeMs(2);
    cost.observe(2, 0, 300);
    assert.ok(cost.decodeMs(2) > before && cost.decodeMs(2) <= 2 * before, `${cost.decodeMs(2)}`);
    assert.equal(cost.mostDecodeTokens, 2);
    for (let i = 0; i < 40; i++) cost.observe(1, 0, 5);
    assert.ok(cost.decodeMs(2) < 10, `${cost.decodeMs(2)}`);
    assert.equal(cost.mostDecodeTokens, 1);
  });

  it("splits a step with few prompt tokens into a pass over the weights and the tokens", () => {
    const cost = learnt([1], () => 20);
    for (let i = 0; i < 10; i++) cost.observe(0, 2, 20 + 2 * 0.5);
    assert.ok(Math.abs(cost.promptMs(100) - 50) < 0.001, `${cost.promptMs(100)} ms for 100`);
    assert.equal(cost.promptAllowance(0), (250 - 20) / 0.5);
  });

  it("soon forgets that the first prompts were slow, and hardly changes for one disturbed step", () => {
    const cost = new StepTimeModel(8, target);
    cost.observe(0, 100, 900);
    for (let i = 0; i < 4; i++) cost.observe(0, 100, 200);
    assert.ok(cost.promptMs(100) < 250, `${cost.promptMs(100)} ms after four of 200`);
    for (let i = 0; i < 10; i++) cost.observe(0, 100, 200);
    cost.observe(0, 100, 5000);
    assert.ok(cost.promptMs(100) < 245, `${cost.promptMs(100)} ms after one of 5000`);
  });

  it("lets prompts fill the time that decodes leave", () => {
    const cost = learnt([10], () => 100);
    cost.observe(10, 100, 200);
    assert.equal(cost.promptAllowance(10), 200);
    assert.equal(cost.promptMs(50), 50);
  });
});
