import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Batch } from "../../../../engines/batch.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

const decodeMs = 10;
const promptTokenMs = 4;

/** Returns the duration of a step: one pass over the weights for its decodes, and another pass for its prompts. */
function cost(promptTokens: number, { tokenCount }: Batch): number {
  const decodes = tokenCount - promptTokens;
  return (decodes > 0 ? decodeMs : 0) + (promptTokens > 0 ? decodeMs + promptTokens * promptTokenMs : 0);
}

function createRig(maxStepMs = 280, extraLogitsRows = 8) {
  const capabilities = { mixesLengths: false, chunkTokens: { least: 64, best: 256 } };
  const rig = createScheduler({
    engine: { maxSequences: 16, sequenceTokens: 8000, maxBatchTokens: 512, extraLogitsRows, capabilities },
    limits: { maxBatchTokens: 512, maxPrefillChunkTokens: 512, maxStepMs },
  });
  const step = () => rig.step((batch) => cost(rig.scheduler.promptTokensInStep, batch));
  return { ...rig, step };
}

type Step = NonNullable<ReturnType<ReturnType<typeof createRig>["step"]>>;
const lengthsOf = ({ fed }: Step) => fed.map(({ from, to }) => to - from);

describe("a model that computes rows of different lengths in several passes", () => {
  it("gets rows of one length per step, and decodes between steps of prompts", () => {
    const { scheduler, step } = createRig();
    const decodes = Array.from({ length: 4 }, (_, seed) =>
      createSequence({ prompt: 8, maxNewTokens: 400, ignoreEos: true, seed }),
    );
    for (const one of decodes) scheduler.add(one);
    for (let i = 0; i < 5; i++) step();
    const before = decodes.map(({ total }) => total);
    const prompts = [900, 700, 500].map((prompt, i) => createSequence({ prompt, maxNewTokens: 5, seed: 9 + i }));
    for (const one of prompts) scheduler.add(one);
    let sinceDecodesMs = 0;
    while (prompts.some(({ state }) => state !== "finished")) {
      const ran = step();
      assert.ok(ran !== null);
      assert.equal(new Set(lengthsOf(ran)).size, 1, `lengths ${lengthsOf(ran)}`);
      const isDecode = lengthsOf(ran)[0] === 1;
      const promptTokens = lengthsOf(ran).length * lengthsOf(ran)[0]!;
      sinceDecodesMs = isDecode ? 0 : sinceDecodesMs + decodeMs + promptTokens * promptTokenMs;
      assert.ok(sinceDecodesMs <= 280 + 64 * promptTokenMs, `decodes stood still for ${sinceDecodesMs} ms`);
    }
    assert.ok(decodes.every(({ total }, i) => total > before[i]! + 10));
  });

  it("gets a step of decodes after each group of prompts, however many arrive", () => {
    const { scheduler, step } = createRig();
    const decode = createSequence({ prompt: 8, maxNewTokens: 2000, ignoreEos: true });
    scheduler.add(decode);
    for (let i = 0; i < 5; i++) step();
    const { total } = decode;
    for (let i = 0; i < 200; i++) {
      while (scheduler.statistics.running + scheduler.statistics.waiting < 12) {
        scheduler.add(
          createSequence({ prompt: 30 + (i % 7), maxNewTokens: 1, seed: i + scheduler.statistics.running }),
        );
      }
      step();
    }
    assert.ok(decode.total >= total + 10, `${decode.total - total} tokens in 200 steps`);
  });

  it("gets prompts of one length in one step", () => {
    const { scheduler, step } = createRig();
    scheduler.add(createSequence({ prompt: 64, maxNewTokens: 1 }));
    while (step());
    for (let seed = 0; seed < 3; seed++) scheduler.add(createSequence({ prompt: 20, maxNewTokens: 1, seed }));
    const ran = step();
    assert.deepEqual(ran && lengthsOf(ran), [20, 20, 20]);
  });

  it("gets whole tokens of a prompt whose logits are wanted, whatever its earlier steps have cost", () => {
    const { scheduler, step } = createRig(280, 30);
    scheduler.add(createSequence({ prompt: 8, maxNewTokens: 400, ignoreEos: true }));
    for (let i = 0; i < 5; i++) step();
    const prompt = createSequence({ prompt: 200, maxNewTokens: 1, wantsPromptLogits: true, seed: 5 });
    scheduler.add(prompt);
    while (prompt.state !== "finished") {
      step();
      assert.ok(Number.isInteger(prompt.computed), `${prompt.computed} tokens`);
    }
  });

  it("gets chunks that end on multiples of its smallest fast length", () => {
    const { scheduler, step } = createRig(100);
    for (let seed = 0; seed < 2; seed++) scheduler.add(createSequence({ prompt: 700, maxNewTokens: 2, seed }));
    for (let ran = step(); ran !== null; ran = step()) {
      for (const { from, to } of ran.fed) if (to < 700) assert.equal(to % 64, 0, `a chunk from ${from} to ${to}`);
    }
  });
});

describe("a prompt that has the engine to itself", () => {
  it("gets longer chunks the longer it is alone, up to the best length, and shorter ones once another arrives", () => {
    const { scheduler, step } = createRig();
    const long = createSequence({ prompt: 6000, maxNewTokens: 2 });
    scheduler.add(long);
    const lengths: number[] = [];
    while (long.computed < 3000) lengths.push(...lengthsOf(step()!));
    // The first chunk is not checked, because it only serves to measure the model's speed.
    assert.ok(lengths[1]! <= 64 && lengths.at(-1) === 256, `${lengths}`);
    assert.deepEqual(
      lengths.slice(1),
      lengths.slice(1).sort((a, b) => a - b),
      "they grow",
    );
    scheduler.add(createSequence({ prompt: 3000, maxNewTokens: 2, seed: 5 }));
    assert.ok(Math.max(...lengthsOf(step()!)) <= 64);
  });
});
