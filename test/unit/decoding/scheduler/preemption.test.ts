import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { longestPauseMs, pauseGraceMs } from "../../../../engines/decoding/scheduler/scheduler.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

const queueFull = (error: unknown) => error instanceof ServerError && error.code === "queue_full";

/** Returns a scheduler whose only slot is held by a paused sequence while another sequence waits for it. */
function createContended(maxQueue = 8) {
  const rig = createScheduler({ engine: { maxSequences: 1, sequenceTokens: 256 }, limits: { maxQueue } });
  const { scheduler, step } = rig;
  const stalled = createSequence({ prompt: 40, maxNewTokens: 30, client: "slow" });
  scheduler.add(stalled);
  for (let i = 0; i < 6; i++) step();
  scheduler.setPaused(stalled, true);
  const other = createSequence({ maxNewTokens: 3, client: "other", seed: 2 });
  scheduler.add(other);
  return { ...rig, stalled, other };
}

describe("a sequence whose reader is behind", () => {
  it("keeps its slot and its KV until the longest pause, if no sequence waits", () => {
    const { scheduler, step } = createScheduler();
    const sequence = createSequence({ maxNewTokens: 50 });
    scheduler.add(sequence);
    step();
    scheduler.setPaused(sequence, true);
    scheduler.advance(longestPauseMs - 1);
    assert.equal(step(), null);
    assert.deepEqual([sequence.state, sequence.computed > 0], ["running", true]);
    assert.equal(scheduler.nextChangeMs, longestPauseMs);
  });

  it("loses its slot after a long pause though no sequence waits, and feeds no token twice if its KV was cached", () => {
    const { scheduler, step } = createScheduler({ limits: { prefixCacheEntries: 1 } });
    const sequence = createSequence({ prompt: 40, maxNewTokens: 50, ignoreEos: true });
    scheduler.add(sequence);
    while (sequence.total < 60) step();
    scheduler.setPaused(sequence, true);
    scheduler.advance(longestPauseMs);
    assert.deepEqual([sequence.state, scheduler.nextChangeMs], ["preempted", Number.POSITIVE_INFINITY]);
    scheduler.setPaused(sequence, false);
    assert.deepEqual(
      step()?.fed.map(({ from, to }) => [from, to]),
      [[59, 60]],
    );
  });

  it("loses its slot to a waiting sequence after the grace period", () => {
    const { scheduler, engine, step, stalled, other } = createContended();
    assert.equal(step(), null, "a short pause is jitter");
    assert.equal(scheduler.nextChangeMs, pauseGraceMs);
    scheduler.advance(pauseGraceMs);
    assert.ok(step());
    assert.deepEqual([stalled.state, stalled.slot, stalled.computed, other.state], ["preempted", -1, 0, "running"]);
    assert.equal(engine.cache.size, 1);
    while (step());
    assert.deepEqual([other.state, stalled.state], ["finished", "preempted"]);
    assert.equal(scheduler.statistics.preemptions.reader, 1);
  });

  it("resumes with its reader and generates the same tokens as one that was never interrupted", () => {
    const alone = createScheduler({ engine: { maxSequences: 1, sequenceTokens: 256 } });
    const undisturbed = createSequence({ prompt: 40, maxNewTokens: 30 });
    alone.scheduler.add(undisturbed);
    while (alone.step());

    const { scheduler, step, stalled } = createContended();
    const before = stalled.total;
    scheduler.advance(pauseGraceMs);
    while (step());
    assert.equal(stalled.total, before);
    scheduler.setPaused(stalled, false);
    const fed = [];
    for (let result = step(); result; result = step()) fed.push(result.fed[0]!);
    assert.equal(stalled.state, "finished");
    assert.deepEqual(stalled.tokens, undisturbed.tokens);
    assert.equal(fed[0]!.from, 0);
    for (const { to, sequence } of fed) assert.ok(to % 32 === 0 || to >= before || to === sequence.total);
  });

  it("is the next of its client to get a slot", () => {
    const { scheduler, step, stalled } = createContended();
    scheduler.advance(pauseGraceMs);
    const sibling = createSequence({ client: "slow", seed: 3 });
    scheduler.add(sibling);
    step();
    scheduler.setPaused(stalled, false);
    while (stalled.state === "waiting") step();
    assert.deepEqual([stalled.state, sibling.state], ["running", "waiting"]);
  });

  it("leaves the queue if it had no slot yet, and returns to it with its reader", () => {
    const { scheduler, step, stalled, other } = createContended();
    scheduler.setPaused(other, true);
    assert.equal(other.state, "preempted");
    scheduler.advance(pauseGraceMs);
    assert.equal(step(), null, "no sequence waits, so none is preempted");
    scheduler.setPaused(other, false);
    assert.ok(step());
    assert.deepEqual([other.state, stalled.state], ["running", "preempted"]);
  });

  it("is preempted before a sequence that has been paused for less time", () => {
    const { scheduler, step } = createScheduler({ engine: { maxSequences: 3, sequenceTokens: 512 } });
    const sequences = [0, 1, 2].map((seed) => createSequence({ maxNewTokens: 400, seed }));
    for (const sequence of sequences) scheduler.add(sequence);
    step();
    [1, 0].forEach((index, i) => {
      scheduler.advance(i * 10);
      scheduler.setPaused(sequences[index]!, true);
    });
    scheduler.advance(1000);
    scheduler.add(createSequence({ seed: 9 }));
    step();
    assert.deepEqual(
      sequences.map(({ state }) => state),
      ["running", "preempted", "running"],
    );
  });

  it("counts against max_queue while it is preempted, and can be cancelled", () => {
    const { scheduler, step, stalled } = createContended(1);
    scheduler.advance(pauseGraceMs);
    step();
    assert.throws(() => scheduler.add(createSequence({ seed: 5 })), queueFull);
    scheduler.cancel(stalled);
    scheduler.add(createSequence({ seed: 5 }));
    scheduler.checkIntegrity();
    assert.equal(scheduler.statistics.preempted, 0);
  });
});

describe("the queue timeout", () => {
  const queueTimeoutMs = 1000;

  function createQueue() {
    const rig = createScheduler({ engine: { maxSequences: 1, sequenceTokens: 512 }, limits: { queueTimeoutMs } });
    rig.scheduler.add(createSequence({ maxNewTokens: 500 }));
    rig.step();
    return rig;
  }

  it("ends sequences that have had no slot by then, and no others", () => {
    const { scheduler } = createQueue();
    const [first, second] = [createSequence({ seed: 2 }), createSequence({ seed: 3, client: "other" })];
    scheduler.add(first);
    scheduler.advance(400);
    scheduler.add(second);
    assert.equal(scheduler.nextChangeMs, queueTimeoutMs);
    assert.deepEqual(scheduler.advance(queueTimeoutMs - 1), []);
    assert.deepEqual(scheduler.advance(queueTimeoutMs), [first]);
    assert.deepEqual([first.state, second.state, scheduler.statistics.running], ["finished", "waiting", 1]);
    assert.equal(scheduler.nextChangeMs, 1400);
    scheduler.checkIntegrity();
  });

  it("does not apply to requests that have begun: further choices and preempted sequences", () => {
    const { scheduler, step } = createQueue();
    const choice = createSequence({ hasQueueLimit: false });
    scheduler.add(choice);
    const [running] = step()!.fed;
    scheduler.setPaused(running!.sequence, true);
    scheduler.advance(500);
    step();
    scheduler.setPaused(running!.sequence, false);
    assert.equal(running!.sequence.state, "waiting");
    assert.deepEqual(scheduler.advance(1e9), []);
  });
});

describe("fairness between clients", () => {
  it("gives the next slot to a client with one request while another has two hundred", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 4, sequenceTokens: 64 },
      limits: { maxQueue: 512 },
    });
    for (let i = 0; i < 200; i++) {
      scheduler.add(createSequence({ client: "many", maxNewTokens: 5 + (i % 7), seed: i }));
    }
    for (let i = 0; i < 20; i++) step();
    const one = createSequence({ client: "one", maxNewTokens: 2 });
    scheduler.add(one);
    let releases = 0;
    while (one.state === "waiting") releases += step()!.ended.length;
    // Several sequences may end in the step that gives the waiting sequence a slot.
    assert.ok(releases <= 4, `${releases} slots went to others`);
  });

  it("feeds the prompt of a client that has just got a slot before another client's long prompts end", () => {
    const { scheduler, step } = createScheduler({
      engine: { maxSequences: 8, sequenceTokens: 600, maxBatchTokens: 64 },
      limits: { maxBatchTokens: 64 },
    });
    for (let i = 0; i < 7; i++) scheduler.add(createSequence({ client: "many", prompt: 500, seed: i }));
    step();
    const one = createSequence({ client: "one", prompt: 560, maxNewTokens: 1, seed: 9 });
    scheduler.add(one);
    assert.equal(step()!.fed[0]!.sequence, one, "the client that has had nothing yet goes first");
    let steps = 1;
    for (; one.state !== "finished"; steps++) step();
    // Half of the tokens of each step belong to the prompt of client "one".
    assert.ok(steps <= (2 * 560) / 64 + 2, `${steps} steps`);
  });
});
