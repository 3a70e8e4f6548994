import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StepTimeModel } from "../../../../engines/decoding/scheduler/step-time-model.ts";
import { DepthPlan } from "../../../../engines/decoding/speculation/depth.ts";

const maxDepth = 16;

/** Returns a plan that has measured steps of the sizes `known`. `ms`: returns the duration of a step by its number of tokens. */
function open(ms: (tokens: number) => number, known: readonly number[], draftingMs = (_sequences: number) => 0) {
  const cost = new StepTimeModel(96, { decodeSlowdown: 3, maxStepMs: 250 });
  for (const tokens of known) cost.observe(tokens, 0, ms(tokens));
  return new DepthPlan(cost, { maxSequences: 64, maxDepth, maxDecodeTokens: 96 }, draftingMs);
}

/** Returns the draft depth chosen for each sequence. `chances`: probability with which each drafted token of a sequence is accepted. */
function depths(plan: DepthPlan, chances: readonly number[], { room = 16, isCostly = false, others = 0 } = {}) {
  plan.clear();
  for (const chance of chances) plan.add({ chance: () => chance }, room, isCostly);
  plan.choose(chances.length + others);
  return [...plan.depths.subarray(0, chances.length)];
}

/** Step time in ms of a small model on two cores: each weight is read once for all tokens, and each token adds arithmetic. */
const memoryBound = (tokens: number) => 3.5 + 1.1 * tokens;
const sizes = [1, 2, 4, 8, 16, 32, 48];

describe("the depth of drafts", () => {
  it("is the maximum for a copy, and 0 for tokens that are mostly wrong", () => {
    const plan = open(memoryBound, sizes);
    assert.deepEqual(depths(plan, [0.99]), [16]);
    assert.deepEqual(depths(plan, [0.1]), [0]);
  });

  it("grows with the probability of acceptance", () => {
    const plan = open(memoryBound, sizes);
    const chosen = [0.2, 0.5, 0.7, 0.85, 0.97].map((chance) => depths(plan, [chance])[0]!);
    assert.deepEqual(
      chosen,
      chosen.toSorted((a, b) => a - b),
    );
    assert.ok(chosen[2]! > 0 && chosen[2]! < 8, `${chosen}`);
  });

  it("spends the tokens of a step where they are likeliest", () => {
    const plan = open(memoryBound, sizes);
    const [likely, unlikely] = depths(plan, [0.95, 0.5]);
    assert.ok(likely! > unlikely!, `${likely} and ${unlikely}`);
  });

  it("is 0 if a drafted token costs as much as a step's own, for any number of sequences", () => {
    const plan = open((tokens) => 2 + tokens, [...sizes, 64]);
    assert.deepEqual(depths(plan, Array<number>(32).fill(0.6)), Array<number>(32).fill(0));
  });

  it("counts sequences without drafts as part of the step", () => {
    const plan = open(memoryBound, sizes);
    const alone = depths(plan, [0.6])[0]!;
    const beside = depths(plan, [0.6], { others: 30 })[0]!;
    assert.ok(beside < alone, `${beside} beside others, ${alone} alone`);
  });

  it("is limited by the room of a sequence and by the tokens of a step", () => {
    const plan = open(() => 10, [96]);
    assert.deepEqual(depths(plan, [0.99], { room: 3 }), [3]);
    const many = depths(plan, Array<number>(40).fill(0.99));
    assert.equal(
      many.reduce((sum, depth) => sum + depth, 40),
      96,
    );
  });

  it("is 0 before a step has been measured, then at most doubles the measured sizes", () => {
    assert.deepEqual(depths(open(memoryBound, []), [0.97]), [0]);
    assert.deepEqual(depths(open(memoryBound, [1]), [0.97]), [1]);
    assert.deepEqual(depths(open(memoryBound, [1, 2]), [0.97]), [3]);
  });

  it("is lower, or 0, if drafting itself takes time", () => {
    const free = depths(open(memoryBound, sizes), [0.8], { isCostly: true })[0]!;
    const cheap = depths(
      open(memoryBound, sizes, (sequences) => sequences && 0.8),
      [0.8],
      { isCostly: true },
    )[0]!;
    const dear = depths(
      open(memoryBound, sizes, (sequences) => sequences && 5),
      [0.8],
      { isCostly: true },
    )[0]!;
    assert.ok(free > cheap && cheap > 0, `${free} free, ${cheap} cheap`);
    assert.equal(dear, 0);
  });

  it("drafts for many sequences, but not for one, if a batched draft costs the same", () => {
    const plan = open(
      (tokens) => 20 + 0.1 * tokens,
      sizes,
      (sequences) => sequences && 12,
    );
    assert.deepEqual(depths(plan, [0.5], { isCostly: true }), [0]);
    assert.ok(depths(plan, Array<number>(4).fill(0.85), { isCostly: true }).every((depth) => depth > 0));
  });
});
