import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { type Side, TurnLock } from "../../../engines/llama/native/turn-lock.ts";

const module = new URL("../../../engines/llama/native/turn-lock.js", import.meta.url).href;

/**
 * Starts a thread that uses one of the lock's two sides, by default not that of the test. `body`: code of the thread, which uses
 * `lock` and the shared array `numbers`.
 */
function otherSide(
  t: TestContext,
  lock: TurnLock,
  numbers: Int32Array,
  body: string,
  side: Side = 1,
): Promise<unknown> {
  const source = `
    const { workerData: { memory, numbers, module } } = require("node:worker_threads");
    import(module).then(({ TurnLock }) => { const lock = new TurnLock(${side}, memory); ${body} });`;
  const worker = new Worker(source, { eval: true, workerData: { memory: lock.memory, numbers, module } });
  t.after(() => worker.terminate());
  return once(worker, "exit");
}

function sharedNumbers(count: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer(4 * count));
}

/** Waits until the other thread has set the number. */
async function until(numbers: Int32Array, index: number, value = 1): Promise<void> {
  while (Atomics.load(numbers, index) !== value) await turn();
}

/** Waits until the thread on the other side of the lock has requested it while this thread holds it. */
function untilAsked(lock: TurnLock): Promise<void> {
  // This word of the lock's memory contains the number of the waiting side.
  return until(new Int32Array(lock.memory), 2);
}

describe("a lock that two threads take turns with", { timeout: 10_000 }, () => {
  it("is held by one of them at a time", async (t) => {
    const lock = new TurnLock(0);
    const numbers = sharedNumbers(2);
    const rounds = 5000;
    // Reads and writes the number in two steps, so that increments would be lost if both threads ran at the same time.
    const add = "for (let i = 0; i < 5000; i++) { lock.acquire(); numbers[0] = numbers[0] + 1; lock.release(); }";
    const ended = otherSide(t, lock, numbers, `Atomics.store(numbers, 1, 1); ${add}`);
    await until(numbers, 1);
    for (let i = 0; i < rounds; i++) {
      lock.acquire();
      numbers[0] = numbers[0]! + 1;
      lock.release();
    }
    await ended;
    assert.equal(numbers[0], 2 * rounds);
  });

  it("passes to the other thread that waits, however soon it is requested again", async (t) => {
    const lock = new TurnLock(0);
    const numbers = sharedNumbers(1);
    lock.acquire();
    const ended = otherSide(t, lock, numbers, "lock.acquire(); Atomics.store(numbers, 0, 1); lock.release();");
    await untilAsked(lock);
    assert.equal(numbers[0], 0);
    lock.release();
    lock.acquire();
    assert.equal(numbers[0], 1);
    lock.release();
    await ended;
  });

  it("is given to a waiting thread although the other one has begun its request earlier", async (t) => {
    const lock = new TurnLock(0);
    const numbers = sharedNumbers(2);
    Atomics.store(new Int32Array(lock.memory), 0, 1);
    const second = otherSide(t, lock, numbers, "lock.acquire(); Atomics.store(numbers, 1, 1); lock.release();");
    await untilAsked(lock);
    // By then the other side is asleep and must be woken.
    await sleep(20);
    assert.equal(numbers[1], 0);
    const first = otherSide(t, lock, numbers, "lock.acquire(); Atomics.store(numbers, 0, 1); lock.release();", 0);
    await Promise.all([first, second]);
    assert.deepEqual([...numbers], [1, 1]);
  });

  it("can be tried without waiting", async (t) => {
    const lock = new TurnLock(0);
    assert.ok(lock.tryAcquire());
    lock.release();
    const numbers = sharedNumbers(2);
    const body =
      "lock.acquire(); Atomics.store(numbers, 0, 1); while (Atomics.load(numbers, 1) === 0); lock.release(); Atomics.store(numbers, 0, 0);";
    const ended = otherSide(t, lock, numbers, body);
    await until(numbers, 0);
    assert.equal(lock.tryAcquire(), false);
    Atomics.store(numbers, 1, 1);
    await ended;
    assert.ok(lock.tryAcquire());
    lock.release();
  });
});
