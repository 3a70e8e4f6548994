import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { GenerationQueue } from "../../../../actors/generation/generation-queue.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { FakeClock } from "../../../fixtures/fakes/fake-clock.ts";

const queueFull = (error: unknown) => error instanceof ServerError && error.code === "queue_full";

const createQueue = () => new GenerationQueue({ slots: 1, maxQueue: 3, clock: new FakeClock() });

describe("the queue of runs", () => {
  it("rejects requests that find no place, also while prompts are prepared", () => {
    const queue = createQueue();
    queue.enter("a", 4);
    assert.throws(() => queue.enter("a", 1), queueFull);
  });

  it("frees places when sequences end, and when a run ends", () => {
    const queue = createQueue();
    const run = queue.enter("a", 4);
    run.begun();
    run.ended(3, true);
    const second = queue.enter("a", 1);
    assert.throws(() => queue.enter("a", 1), queueFull);
    run.close();
    second.close();
    queue.enter("a", 4);
  });

  it("admits another client up to its fair share, but no more", () => {
    const queue = createQueue();
    for (let i = 0; i < 4; i++) queue.enter("many", 1);
    queue.enter("few", 1);
    queue.enter("few", 1);
    assert.throws(() => queue.enter("few", 1), queueFull);
    assert.throws(() => queue.enter("many", 1), queueFull);
  });

  it("frees places of sequences that end without a token", () => {
    const queue = createQueue();
    const run = queue.enter("many", 4);
    run.ended(0, false);
    run.ended(0, false);
    queue.enter("few", 2);
    // Two requests of each client wait. The queue does not drop another request of "many", because "few" would then have more.
    assert.throws(() => queue.enter("few", 1), queueFull);
  });

  it("gives back one place of a sequence that ends by its first row, without a token", () => {
    const queue = createQueue();
    const run = queue.enter("many", 4);
    run.begun();
    run.ended(0, true);
    queue.enter("few", 1);
    queue.enter("few", 1);
    // Three requests of "many" wait. The queue drops one of them for the second request of "few", but none for the
    // third.
    assert.throws(() => queue.enter("few", 1), queueFull);
  });

  it("counts paused sequences as waiting until they continue", () => {
    const queue = createQueue();
    const runs = [1, 2, 3, 4].map(() => queue.enter("many", 1));
    for (const run of runs) run.begun();
    assert.throws(() => queue.enter("few", 1), queueFull);
    for (const run of runs) run.paused();
    queue.enter("few", 1).close();
    for (const run of runs) run.resumed();
    assert.throws(() => queue.enter("few", 1), queueFull);
    for (const run of runs) {
      run.paused();
      run.close();
    }
    queue.enter("few", 4);
  });

  it("does not limit sequences that have begun", () => {
    const queue = createQueue();
    for (let i = 0; i < 4; i++) queue.enter("many", 1).begun();
    assert.throws(() => queue.enter("few", 1), queueFull);
  });
});
