import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Sequence } from "../../../engines/scheduler/sequence.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { createScheduler, createSequence, seededRandom } from "../../fixtures/scheduling.ts";

const operations = 10_000;

describe("the scheduler under a seeded random load", () => {
  for (const seed of [1, 2, 3]) {
    it(`keeps its books and the engine's cache right over ${operations} adds, cancels, pauses and steps (seed ${seed})`, () => {
      const random = seededRandom(seed);
      const below = (n: number) => Math.floor(random() * n);
      const { scheduler, engine, step } = createScheduler({
        engine: { maxSequences: 6, sequenceTokens: 200, endOfGeneration: [0] },
        limits: { maxBatchTokens: 70, maxPrefillChunkTokens: 64, maxDecodeStepsBeforePrefill: 3, maxQueue: 1 },
      });
      const live: Sequence[] = [];
      let finished = 0;
      let refused = 0;
      for (let i = 0; i < operations; i++) {
        const dice = random();
        if (dice < 0.3) {
          const sequence = createSequence({ prompt: 1 + below(120), maxNewTokens: 1 + below(60), seed: i });
          try {
            scheduler.add(sequence);
            live.push(sequence);
          } catch (error) {
            assert.ok(error instanceof ServerError && error.code === "queue_full", String(error));
            refused++;
          }
        } else if (dice < 0.35 && live.length > 0) {
          scheduler.cancel(live.splice(below(live.length), 1)[0]!);
        } else if (dice < 0.45 && live.length > 0) {
          scheduler.setPaused(live[below(live.length)]!, random() < 0.4);
        } else {
          for (const { sequence } of step(1 + below(40))?.ended ?? []) {
            live.splice(live.indexOf(sequence), 1);
            finished++;
          }
        }
        scheduler.checkIntegrity();
        assert.ok(engine.cache.size <= scheduler.runningCount, "the engine holds a sequence nobody owns");
      }
      for (const sequence of live) scheduler.setPaused(sequence, false);
      for (let i = 0; live.some((sequence) => sequence.state !== "finished"); i++) {
        assert.ok(i < 10_000, "the sequences left do not come to an end");
        step();
      }
      assert.equal(scheduler.runningCount + scheduler.waitingCount + engine.cache.size, 0);
      assert.ok(finished > 300 && refused > 50, `the load was thin: ${finished} finished, ${refused} refused`);
    });
  }
});
