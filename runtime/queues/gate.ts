// Gate: limits the number of concurrent runs. Used for tasks that need much memory or occupy the thread for long.
import { FairQueue } from "./fair-queue.ts";

interface Waiting {
  readonly client: string;
  readonly enter: () => void;
}

export class Gate {
  #free: number;
  readonly #waiting = new FairQueue<Waiting>();

  /** `places`: maximum number of concurrent runs. */
  constructor(places: number) {
    this.#free = places;
  }

  /**
   * Starts the run when the number of active runs is below the limit. Waiting clients take turns. Runs of one client start in
   * the order of their arrival. When a run ends, the next one starts in the next turn of the event loop. Rejects with the reason of
   * `signal` if it is aborted before the run starts.
   */
  async pass<T>(run: () => Promise<T>, client = "", signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free--;
    else await this.#turn(client, signal);
    try {
      return await run();
    } finally {
      setImmediate(this.#leave);
    }
  }

  #turn(client: string, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((enter, reject) => {
      const waiting = { client, enter };
      this.#waiting.add(waiting, false);
      const giveUp = (): void => {
        if (this.#waiting.remove(waiting)) reject(signal?.reason);
      };
      signal?.addEventListener("abort", giveUp, { once: true });
    });
  }

  readonly #leave = (): void => {
    const next = this.#waiting.take();
    if (next === undefined) this.#free++;
    else next.enter();
  };
}
