// Loading flag: a flag in memory that a worker shares with the thread that started it. The flag shows whether the worker is
// loading modules. A worker must not be terminated while it loads modules, because Node would leave module files open and might
// abort the whole process (Node 20: "v8::FromJust Maybe value is Nothing" in PatchProcessObject).
import { setTimeout as sleep } from "node:timers/promises";

const LOADING = 0;
const LOADED = 1;
/** The worker is about to be terminated and must not load further modules. */
const ENDING = 2;
/** Time in ms after which a worker is terminated even if it is still loading modules. */
const MOST_LOAD_MS = 10_000;
const LOOK_MS = 10;
/**
 * Maximum time in ms for which an exiting thread waits until its workers have loaded their modules. Node terminates the workers
 * together with the thread.
 */
const MOST_EXIT_MS = 5000;

/** Flags of the workers that this thread has started and that have not ended. */
const workers = new Set<LoadingFlag>();

process.on("exit", () => {
  const until = performance.now() + MOST_EXIT_MS;
  for (const flag of workers) flag.block(until - performance.now());
});

export class LoadingFlag {
  /**
   * Shared memory of the flag, passed to the worker. Its initial value is LOADING, because a worker first loads its modules.
   */
  readonly memory: SharedArrayBuffer;
  readonly #flag: Int32Array;
  /** Number of loads in progress in the worker. */
  #loads = 0;

  constructor(memory = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#flag = new Int32Array(memory);
  }

  /** Called in the worker: runs `load`, which loads modules. Throws if the worker is about to be terminated. */
  async during<T>(load: () => Promise<T>): Promise<T> {
    if (Atomics.compareExchange(this.#flag, 0, LOADED, LOADING) === ENDING)
      throw new Error("the worker is being ended");
    this.#loads++;
    try {
      return await load();
    } finally {
      this.#loads--;
      if (this.#loads === 0) {
        Atomics.store(this.#flag, 0, LOADED);
        Atomics.notify(this.#flag, 0);
      }
    }
  }

  /**
   * Called in the thread that has started the worker. If this thread exits later, it first waits until the worker has loaded
   * its modules.
   */
  started(): void {
    workers.add(this);
  }

  ended(): void {
    workers.delete(this);
  }

  /** Resolves when the worker is not loading modules and can no longer begin to. Waits for at most MOST_LOAD_MS. */
  async loaded(): Promise<void> {
    const until = performance.now() + MOST_LOAD_MS;
    while (workers.has(this) && !this.#forbid() && performance.now() < until) await sleep(LOOK_MS);
  }

  /** Blocks this thread until the worker is not loading modules and can no longer begin to, but at most for `limitMs`. */
  block(limitMs: number): void {
    const until = performance.now() + limitMs;
    while (!this.#forbid() && performance.now() < until)
      Atomics.wait(this.#flag, 0, LOADING, until - performance.now());
  }

  /** Forbids the worker to load further modules. If the worker is loading modules now, changes nothing and returns false. */
  #forbid(): boolean {
    return Atomics.compareExchange(this.#flag, 0, LOADED, ENDING) !== LOADING;
  }
}
