import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import { Worker } from "node:worker_threads";
import { TurnLock } from "../../../engines/llama/turn-lock.ts";

const module = new URL("../../../engines/llama/turn-lock.js", import.meta.url).href;

/** A thread that has the other side of the lock; `body` is what it does with `lock` and the numbers shared with it. */
function otherSide(lock: TurnLock, numbers: Int32Array, body: string): Worker {
  const source = `
    const { workerData: { memory, numbers, module } } = require("node:worker_threads");
    import(module).then(({ TurnLock }) => { const lock = new TurnLock(1, memory); ${body} });`;
  return new Worker(source, { eval: true, workerData: { memory: lock.memory, numbers, module } });
}

function sharedNumbers(count: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer(4 * count));
}

/** Does so until the other thread has set the number. */
function until(numbers: Int32Array, index: number, body: () => void = () => {}): void {
  while (Atomics.load(numbers, index) === 0) body();
}

describe("a lock that two threads take turns with", () => {
  it("is held by one of them at a time", async () => {
    const lock = new TurnLock(0);
    const numbers = sharedNumbers(2);
    const rounds = 20_000;
    // Adding in two steps loses something wherever both are at it.
    const add = "for (let i = 0; i < 20000; i++) { lock.acquire(); numbers[0] = numbers[0] + 1; lock.release(); }";
    const ended = once(otherSide(lock, numbers, `Atomics.store(numbers, 1, 1); ${add}`), "exit");
    until(numbers, 1);
    for (let i = 0; i < rounds; i++) {
      lock.acquire();
      numbers[0] = numbers[0]! + 1;
      lock.release();
    }
    await ended;
    assert.equal(numbers[0], 2 * rounds);
  });

  it("goes to the other one that waits, however soon it is asked for again", async () => {
    const lock = new TurnLock(0);
    const numbers = sharedNumbers(2);
    lock.acquire();
    const body = "Atomics.store(numbers, 0, 1); lock.acquire(); Atomics.store(numbers, 1, 1); lock.release();";
    const ended = once(otherSide(lock, numbers, body), "exit");
    until(numbers, 0);
    // It has said that it is about to ask; asking takes no time.
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(numbers[1], 0);
    lock.release();
    lock.acquire();
    assert.equal(numbers[1], 1);
    lock.release();
    await ended;
  });

  it("is not waited for where that is not wanted", async () => {
    const lock = new TurnLock(0);
    assert.ok(lock.tryAcquire());
    lock.release();
    const numbers = sharedNumbers(2);
    const body =
      "lock.acquire(); Atomics.store(numbers, 0, 1); while (Atomics.load(numbers, 1) === 0); lock.release(); Atomics.store(numbers, 0, 0);";
    const ended = once(otherSide(lock, numbers, body), "exit");
    until(numbers, 0);
    assert.equal(lock.tryAcquire(), false);
    Atomics.store(numbers, 1, 1);
    await ended;
    assert.ok(lock.tryAcquire());
    lock.release();
  });
});
