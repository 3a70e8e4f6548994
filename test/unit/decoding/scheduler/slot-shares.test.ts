import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import { pauseGraceMs } from "../../../../engines/decoding/scheduler/scheduler.ts";
import type { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import type { FakeEngineOptions } from "../../../fixtures/fakes/fake-engine.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

const slotShareMs = 2000;
/** Time in ms after which a client without a slot gets one. */
const firstSlotMs = slotShareMs / 32;
/** Maximum delay in ms until the scheduler notices a waiting client: the interval of its checks plus the duration of two steps. */
const lookMs = slotShareMs / 64 + 20;
const stepMs = 10;

/** Returns a scheduler with a share period of 2 s, and a clock that each step advances. */
function createShared(options: { engine?: FakeEngineOptions; limits?: Partial<SchedulerLimits> } = {}) {
  const rig = createScheduler({
    engine: { maxSequences: 4, sequenceTokens: 4096, kvBlocks: 4096, ...options.engine },
    limits: { slotShareMs, ...options.limits },
  });
  const { scheduler } = rig;
  const ended: Sequence[] = [];
  const clock = { nowMs: 0 };
  const step = () => {
    const result = rig.step(stepMs);
    clock.nowMs += stepMs;
    scheduler.advance(clock.nowMs);
    ended.push(...(result?.ended ?? []).map(({ sequence }) => sequence));
    return result;
  };
  const stepUntil = (nowMs: number) => {
    while (clock.nowMs < nowMs) step();
  };
  let seed = 0;
  /** Adds a sequence for a client. The sequence does not end by itself. */
  const ask = (client: string, more: Parameters<typeof createSequence>[0] = {}) => {
    const sequence = createSequence({ client, maxNewTokens: 3000, ignoreEos: true, seed: seed++, ...more });
    scheduler.add(sequence);
    return sequence;
  };
  const fill = (client: string, count: number, more: Parameters<typeof createSequence>[0] = {}) =>
    Array.from({ length: count }, () => ask(client, more));
  const states = (sequences: readonly Sequence[]) => sequences.map(({ state }) => state);
  return { ...rig, step, stepUntil, ask, fill, states, ended, clock };
}

/** Returns the tokens that the sequence generates when it runs without other sequences. */
function undisturbed(sequence: Sequence, tokens: number): Int32Array {
  const { scheduler, step } = createScheduler({ engine: { maxSequences: 1, sequenceTokens: 4096 } });
  const { promptLength } = sequence;
  const alone = createSequence({ prompt: promptLength, maxNewTokens: tokens - promptLength, ignoreEos: true });
  alone.tokens.set(sequence.tokens.subarray(0, sequence.promptLength));
  scheduler.add(alone);
  while (step());
  return alone.tokens;
}

describe("a client that waits for a slot", () => {
  it("gets its first one from the client that has them all after 1/32 of slot_share_secs, and not before", () => {
    const { scheduler, step, stepUntil, ask, fill, states, clock } = createShared();
    const greedy = fill("greedy", 6);
    stepUntil(500);
    const one = ask("one", { maxNewTokens: 3 });
    stepUntil(500 + firstSlotMs - stepMs);
    assert.equal(one.state, "waiting");
    while (one.state === "waiting") step();
    assert.ok(clock.nowMs <= 500 + firstSlotMs + lookMs, `${clock.nowMs} ms`);
    assert.deepEqual(states(greedy), ["running", "running", "running", "waiting", "waiting", "waiting"]);
    assert.equal(scheduler.statistics.preemptions.share, 1);
    assert.equal(scheduler.statistics.preemptions.memory + scheduler.statistics.preemptions.reader, 0);
  });

  it("waits for an answer to end if slot_share_secs is 0", () => {
    const { scheduler, stepUntil, ask, fill } = createShared({ limits: { slotShareMs: 0 } });
    fill("greedy", 4);
    stepUntil(500);
    const one = ask("one");
    assert.equal(scheduler.nextChangeMs, Number.POSITIVE_INFINITY);
    stepUntil(20_000);
    assert.deepEqual([one.state, scheduler.statistics.preemptions.share], ["waiting", 0]);
  });

  it("gets it before waiting sequences of the client that gave it up, whose preempted answer is its next", () => {
    const { step, stepUntil, ask, fill, states } = createShared();
    const greedy = fill("greedy", 6);
    stepUntil(500);
    const one = ask("one", { maxNewTokens: 20 });
    while (one.state !== "finished") step();
    step();
    assert.deepEqual(states(greedy), ["running", "running", "running", "running", "waiting", "waiting"]);
  });

  it("costs the preempted answer only time: no token is fed twice, and its text stays the same", () => {
    const { scheduler, step, stepUntil, ask, fill } = createShared();
    const greedy = fill("greedy", 4, { maxNewTokens: 600 });
    stepUntil(500);
    ask("one", { maxNewTokens: 20 });
    const fed = new Map<Sequence, number>();
    while (greedy.some(({ state }) => state !== "finished")) {
      for (const { sequence, from, to } of step()?.fed ?? []) fed.set(sequence, (fed.get(sequence) ?? 0) + to - from);
    }
    const [interrupted] = greedy.slice(3);
    assert.equal(scheduler.statistics.preemptions.share, 1);
    for (const sequence of greedy) assert.ok((fed.get(sequence) ?? 0) < sequence.tokens.length);
    assert.deepEqual(interrupted!.tokens, undisturbed(interrupted!, interrupted!.tokens.length));
  });

  it("costs the preempted answer no token if others share half of it", () => {
    const { scheduler, step, stepUntil, ask } = createShared({ limits: { prefixCacheEntries: 16 } });
    const greedy = [1, 2, 3, 4].map((last) => {
      const sequence = createSequence({ client: "greedy", prompt: 40, maxNewTokens: 300, ignoreEos: true });
      sequence.tokens[39] = last;
      scheduler.add(sequence);
      return sequence;
    });
    stepUntil(420);
    ask("one", { maxNewTokens: 5 });
    let fed = greedy.reduce((sum, { computed }) => sum + computed, 0);
    while (greedy.some(({ state }) => state !== "finished")) {
      for (const { sequence, from, to } of step()?.fed ?? []) if (greedy.includes(sequence)) fed += to - from;
    }
    assert.equal(scheduler.statistics.preemptions.share, 1);
    assert.equal(fed, 4 * (40 + 300 - 1), `${fed} tokens`);
  });

  it("counts from when its client last got a slot: one per period, until the shares are equal", () => {
    const { scheduler, stepUntil, fill, states, clock } = createShared({ engine: { maxSequences: 8 } });
    fill("greedy", 20);
    stepUntil(500);
    const others = fill("other", 20);
    const held = () => states(others).filter((state) => state === "running").length;
    const at = (periods: number) => 500 + firstSlotMs + (periods - 1) * (slotShareMs + lookMs) + lookMs;
    for (const periods of [1, 2, 3, 4]) {
      stepUntil(at(periods));
      assert.equal(held(), periods, `${clock.nowMs} ms`);
    }
    stepUntil(25_000);
    assert.deepEqual([held(), scheduler.statistics.preemptions.share], [4, 4], "no slot goes back and forth");
  });

  it("takes none from clients with fewer than two slots more", () => {
    const { scheduler, stepUntil, fill, ask } = createShared();
    fill("a", 1);
    fill("b", 1);
    fill("c", 1);
    fill("d", 1);
    stepUntil(500);
    const one = ask("e");
    stepUntil(20_000);
    assert.deepEqual([one.state, scheduler.statistics.preemptions.share], ["waiting", 0]);
  });

  it("takes it from the client with most slots, and there from the sequence admitted last", () => {
    const { stepUntil, fill, ask, states } = createShared({ engine: { maxSequences: 8 } });
    const [some, most] = [fill("some", 3), fill("most", 5)];
    stepUntil(500);
    ask("one");
    stepUntil(3000);
    assert.deepEqual(states(some), ["running", "running", "running"]);
    assert.deepEqual(states(most), ["running", "running", "running", "running", "waiting"]);
  });

  it("gets it for its own first sequence by priority, whatever the priority of other clients", () => {
    const { stepUntil, fill, ask, states, clock } = createShared({ engine: { maxSequences: 2 } });
    const greedy = fill("greedy", 12, { priority: -1000 });
    stepUntil(500);
    const [lesser, first] = [ask("one", { priority: 2 }), ask("one", { priority: 1 })];
    stepUntil(500 + firstSlotMs + lookMs);
    assert.deepEqual(
      [first.state, lesser.state, ...states(greedy.slice(0, 2))],
      ["running", "waiting", "running", "waiting"],
    );
    stepUntil(clock.nowMs + 4 * slotShareMs);
    assert.deepEqual([first.state, lesser.state, greedy[0]?.state], ["running", "waiting", "running"]);
  });

  it("is not starved by short answers of a higher priority, even with one slot", () => {
    const { scheduler, step, stepUntil, ask, ended, clock } = createShared({ engine: { maxSequences: 1 } });
    const refill = () => {
      while (scheduler.statistics.waiting < 4) ask("greedy", { priority: -1000, maxNewTokens: 10 });
    };
    refill();
    stepUntil(500);
    const one = ask("one", { maxNewTokens: 10 });
    while (one.state === "waiting" && clock.nowMs < 20_000) {
      refill();
      step();
    }
    assert.equal(one.state, "running");
    assert.ok(clock.nowMs >= 500 + slotShareMs && clock.nowMs <= 500 + slotShareMs + 20 * stepMs, `${clock.nowMs} ms`);
    assert.ok(ended.length > 20, "until then priority decides");
  });

  it("takes the slot of the sequence with the lowest priority first", () => {
    const { stepUntil, fill, ask, states } = createShared();
    const greedy = [...fill("greedy", 1, { priority: 3 }), ...fill("greedy", 3)];
    stepUntil(500);
    ask("one");
    stepUntil(3000);
    assert.deepEqual(states(greedy), ["waiting", "running", "running", "running"]);
  });

  it("takes the slot of a paused sequence if there is one", () => {
    const { scheduler, stepUntil, fill, ask, states } = createShared();
    const greedy = fill("greedy", 4);
    stepUntil(500);
    scheduler.setPaused(greedy[0]!, true);
    const one = ask("one");
    stepUntil(500 + 2 * pauseGraceMs);
    assert.deepEqual([one.state, ...states(greedy)], ["running", "preempted", "running", "running", "running"]);
  });

  it("takes a slot from one of a request's choices, which all count for their client", () => {
    const { scheduler, stepUntil, ask, states } = createShared();
    const choices = Array.from({ length: 6 }, () =>
      createSequence({ client: "greedy", maxNewTokens: 3000, ignoreEos: true }),
    );
    scheduler.add(choices);
    stepUntil(500);
    const one = ask("one");
    stepUntil(3000);
    assert.deepEqual([one.state, states(choices).filter((state) => state === "running").length], ["running", 3]);
  });

  it("appears in nextChangeMs until it has its slot", () => {
    const { scheduler, step, stepUntil, fill, ask } = createShared();
    fill("greedy", 4);
    stepUntil(500);
    ask("one");
    assert.equal(scheduler.nextChangeMs, 500 + firstSlotMs);
    scheduler.advance(500 + firstSlotMs);
    step();
    assert.equal(scheduler.statistics.preemptions.share, 1);
    assert.equal(scheduler.nextChangeMs, Number.POSITIVE_INFINITY);
  });
});

describe("many clients that wait for slots", () => {
  it("get theirs one after another, at most sixteen in a period", () => {
    const { scheduler, stepUntil, fill, ask } = createShared({ engine: { maxSequences: 32, maxBatchTokens: 1024 } });
    fill("greedy", 40);
    stepUntil(500);
    for (let i = 0; i < 31; i++) ask(`client ${i}`);
    stepUntil(500 + firstSlotMs + slotShareMs);
    assert.ok(
      scheduler.statistics.preemptions.share >= 14 && scheduler.statistics.preemptions.share <= 17,
      `${scheduler.statistics.preemptions.share}`,
    );
    stepUntil(500 + 6 * slotShareMs);
    assert.equal(scheduler.statistics.preemptions.share, 31);
    stepUntil(20_000);
    assert.equal(scheduler.statistics.preemptions.share, 31);
  });
});

describe("a share of the slots where KV cannot be kept", () => {
  const recomputing = { capabilities: { saveState: false, copyPrefix: false } };

  it("is given only after eight times the time to recompute the lost KV", () => {
    const { scheduler, step, stepUntil, fill, ask, clock } = createShared({
      engine: recomputing,
      limits: { slotShareMs: 100 },
    });
    const greedy = fill("greedy", 4, { prompt: 256 });
    stepUntil(6000);
    // Milliseconds per prompt token, as measured while the prompts were fed.
    const msPerToken = scheduler.cost.promptMs(1);
    const since = clock.nowMs;
    const one = ask("one", { maxNewTokens: 10 });
    while (one.state === "waiting") step();
    const computed = greedy[3]!.total - 1;
    const waitedMs = clock.nowMs - since;
    assert.ok(waitedMs >= 8 * computed * msPerToken, `${waitedMs} ms, ${computed} tokens of ${msPerToken} ms`);
    assert.ok(computed * msPerToken * 8 > 150, "the test says nothing");
    assert.equal(scheduler.statistics.preemptions.share, 1);
    stepUntil(clock.nowMs + 500);
    assert.equal(greedy[3]!.state, "running");
    assert.deepEqual(greedy[3]!.tokens.slice(0, greedy[3]!.total), undisturbed(greedy[3]!, greedy[3]!.total));
  });

  it("is given as usual if the prefix cache keeps all KV of the preempted sequence", () => {
    const { scheduler, step, stepUntil, fill, ask } = createShared({
      engine: { capabilities: { truncate: false, copyPrefix: false } },
      limits: { prefixCacheEntries: 4 },
    });
    const [last] = fill("greedy", 4, { prompt: 256 }).slice(3);
    stepUntil(6000);
    const one = ask("one", { maxNewTokens: 100 });
    stepUntil(6000 + firstSlotMs + lookMs);
    assert.deepEqual([one.state, last!.state, scheduler.statistics.preemptions.share], ["running", "waiting", 1]);
    const had = last!.total;
    let fed = null;
    while (fed === null) fed = step()?.fed.find(({ sequence }) => sequence === last) ?? null;
    assert.deepEqual([fed.from, fed.to], [had - 1, had]);
  });

  it("is not needed by encoders, which feed prompts whole: a waiting prompt soon gets its turn", () => {
    const { scheduler, stepUntil, fill, ask } = createShared({
      engine: { capabilities: { saveState: false, copyPrefix: false, truncate: false, wholeSequences: true } },
      limits: { maxBatchTokens: 256 },
    });
    fill("greedy", 60, { isPooled: true, maxNewTokens: 0, prompt: 200 });
    const one = ask("one", { isPooled: true, maxNewTokens: 0, prompt: 200 });
    stepUntil(200);
    assert.deepEqual([one.state, scheduler.statistics.preemptions.share], ["finished", 0]);
  });
});

describe("a client that waits for KV memory", () => {
  it("gets it from the client that has it all, though slots are free", () => {
    const { scheduler, stepUntil, fill, ask, states } = createShared({
      engine: { maxSequences: 8, blockTokens: 16, kvBlocks: 150, sequenceTokens: 1000 },
    });
    // Three of the four sequences fill the KV cache as they grow.
    const greedy = fill("greedy", 4, { prompt: 400, maxNewTokens: 400 });
    stepUntil(2400);
    const one = ask("one", { prompt: 600, maxNewTokens: 20 });
    stepUntil(2400 + firstSlotMs - 2 * stepMs);
    assert.deepEqual([one.state, scheduler.statistics.running], ["waiting", 3]);
    stepUntil(2400 + firstSlotMs + lookMs + 40 * stepMs);
    assert.equal(one.state, "finished");
    assert.ok(scheduler.statistics.preemptions.share > 0);
    stepUntil(60_000);
    assert.deepEqual(states(greedy), ["finished", "finished", "finished", "finished"]);
  });

  it("preempts no sequence if all of them together are too small", () => {
    const { scheduler, stepUntil, fill, ask } = createShared({
      engine: { maxSequences: 8, blockTokens: 16, kvBlocks: 60, sequenceTokens: 900 },
    });
    fill("other", 2, { prompt: 200, maxNewTokens: 40 });
    fill("greedy", 3, { prompt: 16, maxNewTokens: 100, priority: 0 });
    const one = ask("one", { prompt: 850, maxNewTokens: 20 });
    stepUntil(400);
    assert.deepEqual([one.state, scheduler.statistics.preemptions.share], ["waiting", 0]);
  });
});

describe("sequences that wait for a shared prefix", () => {
  it("compute it themselves if the sequence that computes it loses its slot", () => {
    const { scheduler, step, stepUntil, ask, fill, ended } = createShared({
      engine: { sequenceTokens: 4096, maxBatchTokens: 64 },
      limits: { prefixCacheEntries: 4, maxBatchTokens: 64, maxPrefillChunkTokens: 32, slotShareMs: 40 },
    });
    const prompt = { prompt: 1500, seed: 7, maxNewTokens: 5 };
    const greedy = [ask("greedy", { ...prompt, priority: 1 })];
    step();
    greedy.push(...fill("greedy", 3, prompt));
    stepUntil(100);
    assert.ok(greedy.slice(1).every(({ sharedPrefixOwner }) => sharedPrefixOwner === greedy[0]));
    const others = ["one", "two"].map((client) => ask(client, { prompt: 40, maxNewTokens: 5 }));
    while (others[0]?.state === "waiting") step();
    assert.equal(greedy[0]?.state, "waiting");
    stepUntil(500);
    assert.ok(scheduler.statistics.preemptions.share >= 2);
    stepUntil(60_000);
    assert.equal(ended.length, 6);
    for (const sequence of greedy) assert.deepEqual(sequence.tokens, undisturbed(sequence, sequence.tokens.length));
  });
});
