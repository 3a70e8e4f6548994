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
   * the order of their arrival. When a run ends, the next one starts in the next turn of the event loop.
   */
  async pass<T>(run: () => Promise<T>, client = ""): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((enter) => this.#waiting.add({ client, enter }, false));
    try {
      return await run();
    } finally {
      setImmediate(this.#leave);
    }
  }

  readonly #leave = (): void => {
    const next = this.#waiting.take();
    if (next === undefined) this.#free++;
    else next.enter();
  };
}
