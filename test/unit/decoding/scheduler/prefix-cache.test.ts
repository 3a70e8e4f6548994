import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

/** Runs a sequence to its end. Returns how many of its tokens were fed, and its output. */
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
  it("feeds only the new tokens of a chat's next turn, and changes no token of its answer", () => {
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
    // The last token of the response was never fed, so the first turn left 79 of its 80 tokens in the cache.
    assert.equal(fed, 100 - 79 + 4);
    assert.deepEqual(output, run(createRig(0), again()).output);
    assert.equal(rig.scheduler.statistics.prefixes.reusedTokens, 79);
  });

  it("shares the common prefix of two prompts that differ after it", () => {
    const rig = createRig(4);
    run(rig, createSequence({ prompt: 60, maxNewTokens: 1 }));
    const other = () => {
      const sequence = createSequence({ prompt: 60, maxNewTokens: 1 });
      sequence.tokens.fill(3, 44, 60);
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

  it("evicts the least recently used copy when it is full", () => {
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
    run(rig, createSequence({ prompt: 40, maxNewTokens: 1, seed: 9 }));
    for (const prompt of [40, 60, 80, 100]) run(rig, createSequence({ prompt, maxNewTokens: 1 }));
    assert.equal(run(rig, createSequence({ prompt: 40, maxNewTokens: 1, seed: 9 })).fed, 1);
  });

  it("evicts as many of the oldest copies as a sequence needs room for", () => {
    const rig = createScheduler({
      engine: { sequenceTokens: 160, blockTokens: 8, kvBlocks: 20 },
      limits: { prefixCacheEntries: 8 },
    });
    const fedFor = (prompt: number, seed: number) => run(rig, createSequence({ prompt, maxNewTokens: 1, seed })).fed;
    for (const seed of [1, 2, 3]) fedFor(40, seed);
    assert.deepEqual([fedFor(40, 1), fedFor(40, 2), fedFor(40, 3)], [1, 1, 1]);
    fedFor(80, 4);
    assert.equal(rig.scheduler.statistics.prefixes.evictions, 2);
    assert.deepEqual([fedFor(40, 3), fedFor(40, 1)], [1, 40]);
  });

  it("uses only whole copies on models that cannot truncate, and never a prompt's last token", () => {
    const capabilities = { truncate: false, copyPrefix: false };
    const rig = createScheduler({ engine: { sequenceTokens: 256, capabilities }, limits: { prefixCacheEntries: 4 } });
    const first = createSequence({ prompt: 40, maxNewTokens: 9, ignoreEos: true });
    run(rig, first);
    assert.equal(run(rig, createSequence({ prompt: 40, maxNewTokens: 1 })).fed, 40);
    const next = createSequence({ prompt: 60, maxNewTokens: 1 });
    next.tokens.set(first.tokens);
    // The new sequence reuses the 48 tokens that were fed for the earlier one.
    assert.equal(run(rig, next).fed, 12);
  });

  it("keeps the KV of a sequence that is cancelled in its output", () => {
    const rig = createRig(2);
    const cancelled = createSequence({ prompt: 40, maxNewTokens: 9, ignoreEos: true });
    rig.scheduler.add(cancelled);
    for (let i = 0; i < 4; i++) rig.step();
    const text = cancelled.tokens.slice(0, cancelled.total);
    rig.scheduler.cancel(cancelled);
    const next = createSequence({ prompt: 60, maxNewTokens: 1 });
    next.tokens.set(text);
    assert.equal(run(rig, next).fed, 60 - (text.length - 1));
  });

  it("keeps nothing of failed sequences, and nothing at all when it is off", () => {
    const rig = createRig(2);
    const failed = createSequence({ prompt: 40, maxNewTokens: 9, ignoreEos: true });
    rig.scheduler.add(failed);
    for (let i = 0; i < 4; i++) rig.step();
    rig.scheduler.cancel(failed, true);
    assert.equal(run(rig, createSequence({ prompt: 40, maxNewTokens: 1 })).fed, 40);
    const off = createRig(0);
    run(off, createSequence({ prompt: 40, maxNewTokens: 1 }));
    assert.equal(run(off, createSequence({ prompt: 40, maxNewTokens: 1 })).fed, 40);
  });

  it("computes a prefix once that several sequences need at the same time", () => {
    const outputs = [0, 4].map((entries) => {
      const rig = createScheduler({
        engine: { maxSequences: 4, sequenceTokens: 256 },
        limits: { prefixCacheEntries: entries, maxPrefillChunkTokens: 32 },
      });
      const sequences = [0, 1, 2, 3].map((i) => {
        const sequence = createSequence({ prompt: 130, maxNewTokens: 3, ignoreEos: true });
        sequence.tokens[129] = i;
        rig.scheduler.add(sequence);
        return sequence;
      });
      let fed = 0;
      while (sequences.some(({ state }) => state !== "finished")) {
        for (const row of rig.step()?.fed ?? []) fed += row.to - row.from;
      }
      assert.equal(fed, (entries === 0 ? 4 * 130 : 130 + 3) + 4 * 2);
      return sequences.map(({ tokens }) => [...tokens]);
    });
    assert.deepEqual(outputs[0], outputs[1]);
  });

  it("lets a sequence compute the rest of a shared prefix whose owner ends or pauses", () => {
    for (const end of ["cancel", "pause"] as const) {
      const rig = createScheduler({
        engine: { maxSequences: 3, sequenceTokens: 256 },
        limits: { prefixCacheEntries: 4, maxPrefillChunkTokens: 32 },
      });
      const [first, second, third] = [1, 2, 3].map(() => createSequence({ prompt: 130, maxNewTokens: 1 })) as [
        Sequence,
        Sequence,
        Sequence,
      ];
      for (const sequence of [first, second, third]) rig.scheduler.add(sequence);
      rig.step();
      if (end === "cancel") rig.scheduler.cancel(first);
      else rig.scheduler.setPaused(first, true);
      let fed = 0;
      while (second.state !== "finished" || third.state !== "finished") {
        for (const row of rig.step()?.fed ?? []) fed += row.to - row.from;
      }
      assert.equal(fed, end === "cancel" ? 130 + 1 : 98 + 1);
      assert.deepEqual([...second.tokens], [...third.tokens]);
    }
  });
});

describe("sequences that need more KV memory than there is", () => {
  function runAll(options: { readonly swapBytes: number; readonly kvBlocks: number }) {
    const rig = createScheduler({
      engine: { maxSequences: 8, sequenceTokens: 200, blockTokens: 8, kvBlocks: options.kvBlocks },
      limits: { swapBytes: options.swapBytes, prefixCacheEntries: 2 },
    });
    const sequences = Array.from({ length: 8 }, (_, seed) => {
      const sequence = createSequence({ prompt: 20, maxNewTokens: 180, ignoreEos: true, seed });
      rig.scheduler.add(sequence);
      return sequence;
    });
    let fed = 0;
    for (let i = 0; sequences.some(({ state }) => state !== "finished"); i++) {
      assert.ok(i < 5000, "they do not come to an end");
      for (const row of rig.step()?.fed ?? []) fed += row.to - row.from;
    }
    return { rig, fed, output: sequences.map(({ tokens }) => [...tokens]) };
  }

  it("all finish with the same tokens as when run alone, whether their KV is kept or recomputed", () => {
    const roomy = runAll({ swapBytes: 0, kvBlocks: 8 * 25 });
    assert.equal(roomy.rig.scheduler.statistics.preemptions.memory, 0);
    const kept = runAll({ swapBytes: 2 ** 20, kvBlocks: 50 });
    const recomputed = runAll({ swapBytes: 0, kvBlocks: 50 });
    for (const { rig, output } of [kept, recomputed]) {
      assert.ok(rig.scheduler.statistics.preemptions.memory > 3);
      assert.deepEqual(output, roomy.output);
    }
    assert.equal(kept.fed, roomy.fed);
    assert.ok(recomputed.fed > roomy.fed);
  });

  it("are preempted least important first, and the most important gets the memory", () => {
    const rig = createScheduler({
      engine: { maxSequences: 3, sequenceTokens: 160, blockTokens: 8, kvBlocks: 30 },
    });
    const ended: number[] = [];
    const sequences = [5, 0, -5].map((priority, seed) =>
      createSequence({ prompt: 16, maxNewTokens: 140, ignoreEos: true, priority, seed }),
    );
    for (const sequence of sequences) rig.scheduler.add(sequence);
    for (let i = 0; i < 2000 && ended.length < 3; i++) {
      for (const { sequence } of rig.step()?.ended ?? []) ended.push(sequence.priority);
    }
    assert.deepEqual(ended, [-5, 0, 5]);
    assert.ok(rig.scheduler.statistics.preemptions.memory > 0);
  });

  it("resume correctly if a draft was partly wrong before the preemption", () => {
    // The engine also holds the KV of rejected draft tokens, but only the KV of accepted tokens is saved and restored.
    const rig = createScheduler({
      engine: { maxSequences: 2, sequenceTokens: 160, blockTokens: 8, kvBlocks: 26 },
    });
    const [first, second] = [1, 2].map((seed) =>
      createSequence({ prompt: 16, maxNewTokens: 140, ignoreEos: true, seed }),
    ) as [Sequence, Sequence];
    for (const sequence of [first, second]) rig.scheduler.add(sequence);
    for (let i = 0; i < 1000 && rig.scheduler.statistics.running + rig.scheduler.statistics.waiting > 0; i++) {
      for (const sequence of rig.scheduler.nextDecodes()) {
        sequence.draft ??= new Int32Array(3).fill(63);
        sequence.draftCount = Math.min(3, sequence.tokens.length - sequence.total - 1);
      }
      rig.step();
    }
    assert.ok(rig.scheduler.statistics.preemptions.memory > 0);
    assert.deepEqual([first.state, second.state], ["finished", "finished"]);
  });

  it("give the memory of a paused sequence to a waiting one, even if a slot is free", () => {
    const rig = createScheduler({
      engine: { maxSequences: 4, sequenceTokens: 160, blockTokens: 8, kvBlocks: 24 },
    });
    const paused = createSequence({ prompt: 100, maxNewTokens: 50, ignoreEos: true });
    rig.scheduler.advance(0);
    rig.scheduler.add(paused);
    for (let i = 0; i < 8; i++) rig.step();
    rig.scheduler.setPaused(paused, true);
    const waiting = createSequence({ prompt: 100, maxNewTokens: 2, ignoreEos: true, seed: 9 });
    rig.scheduler.add(waiting);
    assert.equal(rig.step(), null);
    rig.scheduler.advance(rig.scheduler.nextChangeMs);
    assert.ok(rig.step());
    assert.equal(waiting.state, "running");
    assert.equal(paused.state, "preempted");
  });

  it("may wait for a prefix that another sequence computes while their own KV is swapped out", () => {
    const rig = createScheduler({
      engine: { maxSequences: 2, sequenceTokens: 512 },
      limits: { prefixCacheEntries: 2, maxPrefillChunkTokens: 32, slotShareMs: 1 },
    });
    const { scheduler } = rig;
    run(rig, createSequence({ prompt: 80, maxNewTokens: 1 }));
    const [earlier, later] = [1, 2].map(() => createSequence({ prompt: 300, maxNewTokens: 2 })) as [Sequence, Sequence];
    for (const sequence of [earlier, later]) {
      scheduler.add(sequence);
      scheduler.setAwaitsGrammar(sequence, true);
    }
    // Both wait with the KV of the cached prefix. The later one loses its slot to another client.
    assert.equal(rig.step(), null);
    const other = createSequence({ client: "other", seed: 9 });
    scheduler.add(other);
    scheduler.advance(1);
    rig.step();
    assert.deepEqual([later.state, later.swappedTokens, other.state], ["waiting", 80, "running"]);
    for (const sequence of [earlier, later]) scheduler.setAwaitsGrammar(sequence, false);
    scheduler.cancel(other);
    rig.step();
    assert.ok(later.sharedPrefixOwner === earlier && later.swapped !== null);
    while (later.state !== "finished") assert.ok(rig.step() !== null);
    assert.deepEqual([...later.tokens], [...earlier.tokens]);
    scheduler.checkIntegrity();
  });

  it("feed tokens that were accepted at once in several steps if a step is small", () => {
    const rig = createScheduler({ limits: { maxBatchTokens: 4 } });
    const sequence = createSequence({ prompt: 8, maxNewTokens: 40, ignoreEos: true });
    rig.scheduler.add(sequence);
    for (let i = 0; i < 3; i++) rig.step();
    for (let token = 0; token < 10; token++) rig.scheduler.accept(sequence, token);
    for (let i = 0; sequence.state !== "finished"; i++) {
      assert.ok(i < 100, "it is never fed again");
      rig.step();
    }
  });
});
