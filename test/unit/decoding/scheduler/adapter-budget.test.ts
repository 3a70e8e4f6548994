import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createTurns } from "./rotation-rig.ts";

/**
 * Durations of an adapter switch in ms. With the first, the scheduler keeps an adapter for several steps; with the
 * second, for the minimum number of steps.
 */
const changes = [8, 0.1];

describe("adapters that take turns with small batches", () => {
  for (const maxBatchTokens of [1, 2, 16, 32, 48, 64]) {
    for (const switchMs of changes) {
      it(`feed both prompts and decodes: ${maxBatchTokens} tokens a step, ${switchMs} ms a switch`, () => {
        const rig = createTurns({ sequences: [1, 2], switchMs, limits: { maxBatchTokens } });
        rig.runFor(2000);
        const made = new Map(rig.tokens);
        // Prompts are added one after another. Each prompt takes several steps.
        for (let i = 0; i < 3; i++) {
          const prompt = rig.add(1, { prompt: 4 * maxBatchTokens + 3, maxNewTokens: 1, seed: 20 + i });
          const from = rig.now();
          while (prompt.state !== "finished" && rig.now() - from < 5000) rig.runFor(1);
          assert.equal(prompt.state, "finished", `${prompt.computed} of ${prompt.total} tokens`);
        }
        for (const one of rig.all) assert.ok(rig.tokens.get(one)! - made.get(one)! >= 3, `${rig.tokens.get(one)}`);
      });

      it(`keep all decodes at one pace: ${maxBatchTokens} tokens a step, ${switchMs} ms a switch`, () => {
        const count = Math.min(2 * maxBatchTokens, 40);
        const rig = createTurns({ sequences: [count, count], switchMs, limits: { maxBatchTokens } });
        rig.runFor(20_000);
        const counts = [...rig.tokens.values()];
        assert.ok(Math.min(...counts) >= 0.8 * Math.max(...counts) - 1 && Math.min(...counts) > 0, counts.join(" "));
      });
    }
  }

  it("feed tokens that were accepted at once in parts if prompts take most of each quantum", () => {
    const rig = createTurns({ sequences: [1, 1], switchMs: 0.1, limits: { maxBatchTokens: 48 } });
    rig.runFor(500);
    const [, decoding] = rig.all;
    const prompts = Array.from({ length: 2 }, (_, i) => rig.add(1, { prompt: 3000, maxNewTokens: 1, seed: 20 + i }));
    for (let i = 0; i < 30; i++) decoding!.tokens[decoding!.total++] = 5;
    const { total } = decoding!;
    while (decoding!.total === total && prompts.some(({ state }) => state !== "finished")) rig.runFor(1);
    assert.ok(prompts.every(({ state }) => state !== "finished"));
  });
});
