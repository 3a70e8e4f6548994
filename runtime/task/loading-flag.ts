// Loading flag: tells the thread that started a worker, through shared memory, whether the worker loads modules. A worker must not be
// ended meanwhile: Node then leaves files of modules open, and may abort the whole process while the worker starts (Node 20:
// "v8::FromJust Maybe value is Nothing" in PatchProcessObject).
import { setTimeout as sleep } from "node:timers/promises";

const LOADING = 0;
const LOADED = 1;
/** The worker is about to be ended, and must not begin to load. */
const ENDING = 2;
/** Time in ms after which a worker that still loads modules is ended all the same. */
const MOST_LOAD_MS = 10_000;
const LOOK_MS = 10;
/** Time in ms for which a thread that exits waits for its workers, because Node ends them with the thread. */
const MOST_EXIT_MS = 5000;

/** Flags of the workers of this thread that have not ended. */
const workers = new Set<LoadingFlag>();

process.on("exit", () => {
  const until = performance.now() + MOST_EXIT_MS;
  for (const flag of workers) flag.block(until - performance.now());
});

export class LoadingFlag {
  /** Passed to the worker. At first the worker loads modules. */
  readonly memory: SharedArrayBuffer;
  readonly #flag: Int32Array;
  /** Number of loads that the worker has begun and not ended. */
  #loads = 0;

  constructor(memory = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#flag = new Int32Array(memory);
  }

  /** In the worker: loads modules. Throws if the worker is about to be ended. */
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

  /** In the thread that has started the worker: from now on, an exit of this thread waits until the worker has loaded its modules. */
  started(): void {
    workers.add(this);
  }

  ended(): void {
    workers.delete(this);
  }

  /** Resolves when the worker loads no modules, and will load none. */
  async loaded(): Promise<void> {
    const until = performance.now() + MOST_LOAD_MS;
    while (workers.has(this) && !this.#forbid() && performance.now() < until) await sleep(LOOK_MS);
  }

  /** Blocks this thread until the worker loads no modules, and will load none. */
  block(limitMs: number): void {
    const until = performance.now() + limitMs;
    while (!this.#forbid() && performance.now() < until)
      Atomics.wait(this.#flag, 0, LOADING, until - performance.now());
  }

  /** Keeps the worker from loading modules. Returns false if it loads some now. */
  #forbid(): boolean {
    return Atomics.compareExchange(this.#flag, 0, LOADED, ENDING) !== LOADING;
  }
}
