import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { longestPauseMs } from "../../../../engines/decoding/scheduler/scheduler.ts";
import type { SequenceRequest } from "../../../../engines/decoding/scheduler/sequence.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { QueueShares } from "../../../../runtime/queues/queue-shares.ts";
import { createScheduler, createSequence } from "../../../fixtures/scheduling.ts";

const queueFull = (error: unknown) => error instanceof ServerError && error.code === "queue_full";

/** Returns a scheduler whose only slot is occupied and whose queue has room for `maxQueue` sequences. */
function createQueue(maxQueue: number) {
  const rig = createScheduler({ engine: { maxSequences: 1, sequenceTokens: 512 }, limits: { maxQueue } });
  rig.scheduler.add(createSequence({ client: "holder", maxNewTokens: 500, ignoreEos: true }));
  rig.step();
  let seed = 100;
  const ask = (client: string, choices = 1, priority = 0) => {
    const sequences = Array.from({ length: choices }, () => createSequence({ client, priority, seed: seed++ }));
    const displaced = rig.scheduler.add(sequences);
    rig.scheduler.checkIntegrity();
    return { sequences, displaced };
  };
  return { ...rig, ask };
}

/**
 * Returns a queue with preempted sequences of the client "stalled". With `request`, all belong to this request; otherwise each
 * has its own.
 */
function createParked(maxQueue: number, count: number, request?: SequenceRequest) {
  const rig = createQueue(maxQueue);
  const { scheduler, step } = rig;
  scheduler.cancel(scheduler.rows[0]!);
  let nowMs = 0;
  const parked = Array.from({ length: count }, (_, i) => {
    const sequence = createSequence({ client: "stalled", seed: i, maxNewTokens: 400, ignoreEos: true });
    scheduler.add(sequence, request);
    step();
    scheduler.setPaused(sequence, true);
    nowMs += longestPauseMs;
    scheduler.advance(nowMs);
    assert.equal(sequence.state, "preempted");
    return sequence;
  });
  scheduler.add(createSequence({ client: "holder", maxNewTokens: 500, ignoreEos: true }));
  step();
  return { ...rig, parked };
}

describe("a full queue", () => {
  it("may be filled by one client, which is refused beyond it", () => {
    const { scheduler, ask } = createQueue(5);
    for (let i = 0; i < 5; i++) assert.deepEqual(ask("many").displaced, []);
    assert.throws(() => ask("many"), queueFull);
    assert.equal(scheduler.statistics.waiting, 5);
  });

  it("takes another client's request in place of the newest one of the client that has most", () => {
    const { scheduler, ask } = createQueue(5);
    const [first, , third] = [ask("many"), ask("few"), ask("many"), ask("many")].map(({ sequences }) => sequences[0]);
    const newest = ask("many").sequences[0];
    const { sequences, displaced } = ask("one");
    assert.deepEqual(displaced, [newest]);
    assert.deepEqual(
      [newest?.state, sequences[0]?.state, first?.state, third?.state],
      ["finished", "waiting", "waiting", "waiting"],
    );
    assert.equal(scheduler.statistics.waiting, 5);
  });

  it("refuses a client that would have as much as the one with most, so that no place goes back and forth", () => {
    const { ask } = createQueue(4);
    for (let i = 0; i < 4; i++) ask("a");
    assert.equal(ask("b").displaced.length, 1);
    assert.equal(ask("b").displaced.length, 1);
    assert.throws(() => ask("b"), queueFull);
    assert.throws(() => ask("a"), queueFull);
    assert.equal(ask("c").displaced.length, 1, "two each, and a third client has none");
    assert.equal(ask("d").displaced.length, 1, "one of them still has two");
    assert.throws(() => ask("e"), queueFull, "one each");
  });

  it("displaces requests as a whole, and queues all choices of one or none", () => {
    const { scheduler, ask } = createQueue(6);
    const [older, newer] = [ask("many", 3), ask("many", 3)];
    const { displaced } = ask("one");
    assert.deepEqual(new Set(displaced), new Set(newer.sequences));
    assert.equal(scheduler.statistics.waiting, 4);
    assert.throws(() => ask("two", 3), queueFull, "it would have as many as the one with most");
    assert.deepEqual(ask("two", 2).displaced, [], "two places were left free");
    assert.ok(older.sequences.every(({ state }) => state === "waiting"));
  });

  it("keeps a request that has begun, with its waiting choices", () => {
    const { scheduler, step, ask } = createQueue(4);
    const { sequences } = ask("many", 4);
    scheduler.cancel(scheduler.rows[0]!);
    step();
    assert.deepEqual(
      sequences.map(({ state }) => state),
      ["running", "waiting", "waiting", "waiting"],
    );
    ask("few");
    assert.throws(() => ask("one"), queueFull);
    assert.equal(scheduler.statistics.waiting, 4);
  });

  it("counts places regardless of priority, and displaces the lowest priority first", () => {
    const { ask } = createQueue(3);
    const [urgent, idle, normal] = [ask("many", 1, -5), ask("many", 1, 5), ask("many")];
    assert.deepEqual(ask("one", 1, 9).displaced, idle.sequences);
    assert.deepEqual(ask("two").displaced, normal.sequences);
    assert.throws(() => ask("three"), queueFull);
    assert.equal(urgent.sequences[0]?.state, "waiting");
  });

  it("displaces nothing for a request that is refused", () => {
    const { scheduler, ask } = createQueue(3);
    for (let i = 0; i < 3; i++) ask("many");
    const whole = createSequence({ client: "one" });
    const tooLong = createSequence({ client: "one", prompt: 600 });
    assert.throws(() => scheduler.add([whole, tooLong]), { code: "context_length_exceeded" });
    assert.throws(() => ask("one", 4), queueFull);
    assert.equal(scheduler.statistics.waiting, 3);
    scheduler.checkIntegrity();
  });

  it("displaces an unread answer, the one preempted last, before a waiting request", () => {
    const { parked, ask } = createParked(4, 3);
    const waiting = ask("stalled").sequences[0];
    assert.deepEqual(ask("one").displaced, [parked[2]]);
    assert.deepEqual(ask("two").displaced, [parked[1]]);
    assert.throws(() => ask("one"), queueFull, "it would have as many as the one with most");
    assert.deepEqual([parked[0]?.state, waiting?.state], ["preempted", "waiting"]);
  });

  it("displaces all preempted answers of a request together", () => {
    const { scheduler, parked, ask } = createParked(4, 4, { hasBegun: false });
    assert.deepEqual(new Set(ask("one").displaced), new Set(parked));
    assert.equal(scheduler.statistics.preempted, 0);
  });

  it("reserves no places for answers whose reader resumes only to stop again, until they have slots", () => {
    const { scheduler, step, parked, ask } = createParked(3, 3);
    for (const sequence of parked) scheduler.setPaused(sequence, false);
    assert.deepEqual(ask("one").displaced, [parked[0]]);
    scheduler.cancel(scheduler.rows[0]!);
    step();
    assert.equal(parked[2]?.state, "running");
    ask("two");
    assert.throws(() => ask("two"), queueFull, "what has its slot again has begun");
  });

  it("belongs to no client because of unread answers of other clients", () => {
    const { parked, ask } = createParked(6, 6);
    const admitted = ["a", "b", "c", "d", "e"].map((client) => ask(client).displaced.length);
    assert.deepEqual(admitted, [1, 1, 1, 1, 1]);
    assert.equal(parked.filter(({ state }) => state === "preempted").length, 1);
  });
});

describe("the shares of a queue", () => {
  const request: SequenceRequest = { hasBegun: false };
  const clients = ["a", "b", "c", "d"];

  it("agree with displacement on whether there is room, and reverse no inequality", () => {
    const arrival = fc.record({ client: fc.constantFrom(...clients), count: fc.integer({ min: 1, max: 4 }) });
    fc.assert(
      fc.property(fc.array(arrival, { maxLength: 60 }), fc.integer({ min: 1, max: 12 }), (arrivals, places) => {
        const shares = new QueueShares();
        let waiting: { readonly client: string; readonly request: SequenceRequest }[] = [];
        const newestOf = function* (client: string) {
          for (const one of waiting.toReversed()) if (one.client === client) yield [one];
        };
        for (const { client, count } of arrivals) {
          const free = places - waiting.length;
          const expected = shares.hasRoomFor(client, count, free);
          const displaced = shares.displacedBy(client, count, free, newestOf);
          assert.equal(displaced !== null, expected);
          if (displaced === null) continue;
          for (const one of displaced) shares.remove(one.client);
          waiting = waiting.filter((one) => !displaced.includes(one));
          for (let i = 0; i < count; i++) {
            waiting.push({ client, request });
            shares.add(client);
          }
          shares.checkIntegrity(waiting.map((one) => one.client));
          assert.ok(waiting.length <= places);
          for (const one of displaced) assert.ok(shares.of(one.client) >= shares.of(client), "the other way round");
        }
      }),
    );
  });

  it("converge: if all clients keep asking, displacement ends", () => {
    const { ask } = createQueue(12);
    for (let i = 0; i < 12; i++) ask("a");
    let displacedCount = 0;
    let last = 0;
    for (let round = 0; round < 100; round++) {
      for (const client of clients) {
        try {
          const { displaced } = ask(client);
          displacedCount += displaced.length;
          if (displaced.length > 0) last = round;
        } catch (error) {
          assert.ok(queueFull(error));
        }
      }
    }
    assert.deepEqual([displacedCount, last < 10], [9, true]);
  });
});
