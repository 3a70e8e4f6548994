import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Sequence } from "../../../engines/scheduler/sequence.ts";
import { createScheduler, createSequence } from "../../fixtures/scheduling.ts";

/** Runs a sequence to its end. Returns how many tokens were fed for it and what it made. */
function run(rig: ReturnType<typeof createScheduler>, sequence: Sequence) {
  rig.scheduler.add(sequence);
  let fed = 0;
  while (sequence.state !== "finished") {
    for (const row of rig.step()?.fed ?? []) fed += row.to - row.from;
  }
  return { fed, output: [...sequence.tokens.subarray(sequence.promptLength)] };
}

function createRig(prefixCacheEntries: number) {
  return createScheduler({ engine: { sequenceTokens: 256 }, limits: { prefixCacheEntries } });
}

describe("the prefix cache", () => {
  it("feeds only what is new of a chat's next turn, and changes no token of its answer", () => {
    const rig = createRig(4);
    const first = createSequence({ prompt: 60, maxNewTokens: 20, ignoreEos: true });
    run(rig, first);
    const next = { prompt: 100, maxNewTokens: 5, ignoreEos: true };
    const again = () => {
      const sequence = createSequence(next);
      sequence.tokens.set(first.tokens);
      return sequence;
    };
    const { fed, output } = run(rig, again());
    // The last token of the answer was never fed: the first turn left 79 of its 80 in the cache.
    assert.equal(fed, 100 - 79 + 4);
    assert.deepEqual(output, run(createRig(0), again()).output);
    assert.equal(rig.scheduler.reusedTokens, 79);
  });

  it("shares what two prompts have in common, though both go on differently", () => {
    const rig = createRig(4);
    run(rig, createSequence({ prompt: 40, maxNewTokens: 1 }));
    const other = () => {
      const sequence = createSequence({ prompt: 40, maxNewTokens: 1 });
      sequence.tokens.fill(3, 24, 40);
      return sequence;
    };
    const { fed, output } = run(rig, other());
    assert.equal(fed, 16);
    assert.deepEqual(output, run(createRig(0), other()).output);
  });

  it("always feeds the last token of a prompt it has seen before", () => {
    const rig = createRig(4);
    const once = () => createSequence({ prompt: 40, maxNewTokens: 3, ignoreEos: true });
    const { output } = run(rig, once());
    assert.deepEqual(run(rig, once()), { fed: 1 + 2, output });
  });

  it("forgets the sequence that was of use longest ago when it has as many as it may keep", () => {
    const rig = createRig(2);
    const ask = (seed: number) => run(rig, createSequence({ prompt: 40, maxNewTokens: 1, seed })).fed;
    assert.equal(ask(1), 40);
    assert.equal(ask(2), 40);
    assert.equal(ask(1), 1);
    assert.equal(ask(3), 40);
    assert.equal(ask(1), 1);
    assert.equal(ask(2), 40);
  });

  it("keeps one copy of a conversation that grows", () => {
    const rig = createRig(2);
    run(rig, createSequence({ prompt: 30, maxNewTokens: 1, seed: 9 }));
    for (const prompt of [20, 40, 60, 80]) run(rig, createSequence({ prompt, maxNewTokens: 1 }));
    assert.equal(run(rig, createSequence({ prompt: 30, maxNewTokens: 1, seed: 9 })).fed, 1);
  });

  it("gives up as many of the oldest as a long sequence needs the room of, and none for one that never fits", () => {
    const rig = createScheduler({
      engine: { sequenceTokens: 256, savedTokens: 100 },
      limits: { prefixCacheEntries: 8 },
    });
    const fedFor = (prompt: number, seed: number) => run(rig, createSequence({ prompt, maxNewTokens: 1, seed })).fed;
    for (const seed of [1, 2, 3]) fedFor(30, seed);
    fedFor(120, 4);
    assert.deepEqual([fedFor(30, 1), fedFor(30, 2), fedFor(30, 3)], [1, 1, 1]);
    fedFor(60, 5);
    assert.deepEqual([fedFor(60, 5), fedFor(30, 3)], [1, 1]);
    assert.equal(fedFor(30, 1), 30);
  });

  it("keeps nothing of sequences that are cancelled, and nothing at all when it is off", () => {
    const rig = createRig(2);
    const cancelled = createSequence({ prompt: 40, maxNewTokens: 9, ignoreEos: true });
    rig.scheduler.add(cancelled);
    rig.step();
    rig.scheduler.cancel(cancelled);
    assert.equal(run(rig, createSequence({ prompt: 40, maxNewTokens: 1 })).fed, 40);
    const off = createRig(0);
    run(off, createSequence({ prompt: 40, maxNewTokens: 1 }));
    assert.equal(run(off, createSequence({ prompt: 40, maxNewTokens: 1 })).fed, 40);
  });
});
