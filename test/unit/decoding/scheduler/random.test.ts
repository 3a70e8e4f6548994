import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Scheduler } from "../../../../engines/decoding/scheduler/scheduler.ts";
import type { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import type { FakeEngine } from "../../../fixtures/fakes/fake-engine.ts";
import { createScheduler, createSequence, seededRandom } from "../../../fixtures/scheduling.ts";

const operations = 20_000;
const loads = [
  { seed: 1, adaptersPerStep: 0, kvBlocks: 28 },
  { seed: 8, adaptersPerStep: 1, kvBlocks: 28 },
  { seed: 3, adaptersPerStep: 1, kvBlocks: 28 },
  { seed: 4, adaptersPerStep: 4, kvBlocks: 28 },
  { seed: 5, adaptersPerStep: 0, kvBlocks: 200, saveState: false },
];

/**
 * Adapters that are loaded and unloaded at random. An adapter that is being unloaded gets no new sequences, and is freed when
 * no sequence uses it.
 */
class AdaptersAtRandom {
  freed = 0;
  readonly #scheduler: Scheduler<Sequence>;
  readonly #engine: FakeEngine;
  readonly #random: () => number;
  #leaving: number[] = [];
  #there: number[] = [0];
  #next = 1;

  constructor(scheduler: Scheduler<Sequence>, engine: FakeEngine, random: () => number) {
    this.#scheduler = scheduler;
    this.#engine = engine;
    this.#random = random;
  }

  pick(): number {
    return this.#there[Math.floor(this.#random() * this.#there.length)]!;
  }

  change(live: readonly Sequence[]): void {
    if (this.#engine.adapters === null) return;
    const unused = this.#leaving.filter((id) => live.every(({ adapter }) => adapter !== id));
    for (const id of unused) {
      this.#scheduler.dropAdapter(id);
      this.#engine.adapters.unload(id);
      this.freed++;
    }
    this.#leaving = this.#leaving.filter((id) => !unused.includes(id));
    if (this.#there.length > 3) this.#leaving.push(...this.#there.splice(1 + Math.floor(this.#random() * 3), 1));
    this.#engine.adapters.loaded.set(this.#next, "");
    this.#there.push(this.#next++);
  }
}

function countsOf(sequences: readonly Sequence[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { client } of sequences) counts.set(client, (counts.get(client) ?? 0) + 1);
  return counts;
}

describe("the scheduler under a seeded random load", () => {
  for (const { seed, adaptersPerStep, kvBlocks, saveState = true } of loads) {
    it(`keeps its own state and the engine's KV consistent over ${operations} adds, cancels, pauses, preemptions, timeouts and steps (seed ${seed}, ${adaptersPerStep} adapters a step, KV is ${saveState ? "" : "not "}kept)`, () => {
      const random = seededRandom(seed);
      const below = (n: number) => Math.floor(random() * n);
      const { scheduler, engine, step } = createScheduler({
        engine: {
          maxSequences: 4,
          sequenceTokens: 200,
          endOfGeneration: [0],
          blockTokens: 8,
          kvBlocks,
          adaptersPerStep,
          capabilities: { saveState },
        },
        limits: {
          maxBatchTokens: 70,
          maxPrefillChunkTokens: 64,
          maxDecodeStepsBeforePrefill: 3,
          prefixCacheEntries: 2,
          maxQueue: 4,
          queueTimeoutMs: 120,
          slotShareMs: 80,
          swapBytes: 600,
        },
      });
      const live: Sequence[] = [];
      const adapters = new AdaptersAtRandom(scheduler, engine, random);
      let finished = 0;
      let refused = 0;
      let expired = 0;
      let displaced = 0;
      let preemptedAndDisplaced = 0;
      let nowMs = 0;
      for (let i = 0; i < operations; i++) {
        const dice = random();
        if (dice < 0.2) {
          // Most sequences belong to the first client.
          const client = `client ${Math.max(below(8) - 4, 0)}`;
          const hasQueueLimit = random() < 0.8;
          const priority = below(3);
          const count = random() < 0.2 ? 2 : 1;
          // Few different seeds, so that many sequences share prefixes.
          const shape = { prompt: 1 + below(80), maxNewTokens: 1 + below(120), seed: below(8) };
          const isPooled = random() < 0.1;
          const options = {
            ...shape,
            ignoreEos: random() < 0.6,
            ...(isPooled && { isPooled, maxNewTokens: 0 }),
            client,
            hasQueueLimit,
            priority,
            adapter: adapters.pick(),
          };
          const sequences = Array.from({ length: count }, () => createSequence(options));
          const before = countsOf(
            live.filter((one) => one.state !== "running" && (one.order === 0 || one.wasPreempted)),
          );
          try {
            const gone = scheduler.add(sequences);
            live.push(...sequences);
            for (const one of gone) {
              assert.ok(one.state === "finished" && (one.order === 0 || one.wasPreempted) && one.client !== client);
              if (one.isPaused) preemptedAndDisplaced++;
              assert.ok((before.get(one.client) ?? 0) > (before.get(client) ?? 0) + count, "a smaller share was taken");
              live.splice(live.indexOf(one), 1);
              displaced++;
            }
          } catch (error) {
            assert.ok(error instanceof ServerError && error.code === "queue_full", String(error));
            refused++;
          }
        } else if (dice < 0.22 && live.length > 0) {
          scheduler.cancel(live.splice(below(live.length), 1)[0]!);
        } else if (dice < 0.28 && live.length > 0) {
          scheduler.setPaused(live[below(live.length)]!, random() < 0.45);
        } else {
          const stepMs = 1 + below(40);
          nowMs += stepMs;
          for (const sequence of scheduler.advance(nowMs)) {
            live.splice(live.indexOf(sequence), 1);
            expired++;
          }
          for (const { sequence } of step(stepMs)?.ended ?? []) {
            live.splice(live.indexOf(sequence), 1);
            finished++;
          }
        }
        if (random() < 0.01) adapters.change(live);
        scheduler.checkIntegrity();
        assert.ok(
          engine.cache.size <= scheduler.statistics.running,
          "the engine holds KV of a sequence without a slot",
        );
      }
      for (const sequence of live) scheduler.setPaused(sequence, false);
      for (let i = 0; live.some((sequence) => sequence.state !== "finished"); i++) {
        assert.ok(i < 10_000, "the remaining sequences do not finish");
        step();
      }
      assert.equal(
        scheduler.statistics.running +
          scheduler.statistics.waiting +
          scheduler.statistics.preempted +
          engine.cache.size,
        0,
      );
      const counts = {
        finished,
        refused,
        expired,
        paused: scheduler.statistics.preemptions.reader,
        ...(kvBlocks < 100 && { swapped: scheduler.statistics.preemptions.memory }),
        taken: scheduler.statistics.preemptions.share,
        displaced,
        preemptedAndDisplaced,
        shared: scheduler.statistics.prefixes.hits,
        ...(adaptersPerStep === 1 && { switches: scheduler.statistics.adapterSwitches }),
        ...(adaptersPerStep > 0 && { freed: adapters.freed }),
      };

      assert.ok(
        Object.values(counts).every((count) => count > 6),
        `the load was thin: ${JSON.stringify(counts)}`,
      );
    });
  }
});
