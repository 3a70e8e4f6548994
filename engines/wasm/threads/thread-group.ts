// Thread group: synchronises the compute threads. During a pass, they wait for each other at a barrier; between passes,
// they wait for the next pass. A wait first spins, because most waits are shorter than the time to wake a sleeping
// thread. After that, it sleeps. Every thread has a ThreadGroup on the same control block. The leader is thread 0; it
// also runs the step loop.
import { existsSync, readlinkSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";

/** Index of each 32-bit word in the control block, which all threads share. */
const word = { arrived: 0, phase: 1, sleepers: 2, passes: 3, failed: 4, stopped: 5, loadedKiB: 6, threadIds: 8 };

/**
 * Number of times that a waiting thread reads a word before it sleeps: `barrierSpins` at a barrier, `passSpins` in the
 * wait for the next pass. A read takes about 10 ns. Spinning at a barrier therefore lasts about 100 us, which is also
 * the time that a thread needs to go to sleep and wake up. Ten times as many reads are no faster, and they keep a core
 * from threads that have work (bench/results/threads.md).
 */
const barrierSpins = 10_000;
const passSpins = 20_000;
/** Interval in milliseconds at which the sleeping leader checks that the other threads are alive. */
const livenessMs = 100;

export class ThreadGroup {
  readonly index: number;
  readonly size: number;
  readonly #control: Int32Array;
  #passesSeen = 0;

  static controlBytes(size: number): number {
    return (word.threadIds + size) * Int32Array.BYTES_PER_ELEMENT;
  }

  constructor(control: SharedArrayBuffer, index: number, size: number) {
    this.#control = new Int32Array(control);
    this.index = index;
    this.size = size;
    Atomics.store(this.#control, word.threadIds + index, systemThreadId());
  }

  /** Waits until all threads have called barrier(). Throws model_failed if one of them failed. */
  barrier(): void {
    if (this.size === 1) return;
    const control = this.#control;
    const phase = Atomics.load(control, word.phase);
    // The failure flag is read after the phase. A failure that occurs after this check also changes the phase, which
    // ends the wait below.
    this.#checkFailed();
    if (Atomics.add(control, word.arrived, 1) === this.size - 1) {
      Atomics.store(control, word.arrived, 0);
      Atomics.add(control, word.phase, 1);
      this.#wakeSleepers(word.phase);
    } else {
      this.#waitWhile(word.phase, phase, barrierSpins);
    }
    this.#checkFailed();
  }

  /**
   * Starts a pass on the other threads; the pass descriptor says what it computes. Only the leader calls this method.
   */
  startPass(): void {
    Atomics.add(this.#control, word.passes, 1);
    this.#wakeSleepers(word.passes);
  }

  /**
   * Waits for the next pass. Returns false if the group was stopped or has failed. Called by all threads except the
   * leader.
   */
  awaitPass(): boolean {
    this.#waitWhile(word.passes, this.#passesSeen, passSpins);
    this.#passesSeen++;
    return Atomics.load(this.#control, word.stopped) === 0 && Atomics.load(this.#control, word.failed) === 0;
  }

  /** Makes the other threads end after their current pass. Only the leader calls it. */
  stop(): void {
    Atomics.store(this.#control, word.stopped, 1);
    this.startPass();
  }

  /** Ends all present and future waits of all threads, so that no further pass completes. Any thread may call it. */
  fail(): void {
    Atomics.store(this.#control, word.failed, 1);
    for (const at of [word.phase, word.passes]) {
      Atomics.add(this.#control, at, 1);
      Atomics.notify(this.#control, at);
    }
  }

  addLoaded(bytes: number): void {
    Atomics.add(this.#control, word.loadedKiB, bytes >>> 10);
  }

  get loadedBytes(): number {
    return Atomics.load(this.#control, word.loadedKiB) * 1024;
  }

  #checkFailed(): void {
    if (Atomics.load(this.#control, word.failed) === 0) return;
    throw new ServerError("model_failed", "the wasm engine's forward pass failed: a compute thread failed");
  }

  #waitWhile(at: number, value: number, spins: number): void {
    const control = this.#control;
    for (let i = 0; i < spins; i++) if (Atomics.load(control, at) !== value) return;
    Atomics.add(control, word.sleepers, 1);
    const isLeader = this.index === 0;
    while (Atomics.load(control, at) === value) {
      const outcome = Atomics.wait(control, at, value, isLeader ? livenessMs : undefined);
      if (outcome === "timed-out" && !this.#othersLive()) this.fail();
    }
    Atomics.sub(control, word.sleepers, 1);
  }

  #wakeSleepers(at: number): void {
    if (Atomics.load(this.#control, word.sleepers) > 0) Atomics.notify(this.#control, at);
  }

  /**
   * Whether the other threads are alive. The leader waits without an event loop, so it receives no event when a worker
   * ends. On Linux, /proc shows whether the thread exists; elsewhere this returns true.
   */
  #othersLive(): boolean {
    for (let other = 1; other < this.size; other++) {
      const id = Atomics.load(this.#control, word.threadIds + other);
      if (id > 0 && !existsSync(`/proc/self/task/${id}`)) return false;
    }
    return true;
  }
}

/** Returns the operating system's id of this thread; 0 if unavailable. */
function systemThreadId(): number {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return 0;
  }
}
