// AdapterLoadLock: limits the whole server to one adapter load at a time, because a load takes disk bandwidth and a CPU core away
// from requests. The adapters of all models share one lock.
import { ServerError } from "../../runtime/errors.ts";

export class AdapterLoadLock {
  #isTaken = false;

  /** Acquires the lock and returns the function that releases it, to be called once. Throws lora_load_busy if the lock is held. */
  enter(): () => void {
    if (this.#isTaken) {
      throw new ServerError(
        "lora_load_busy",
        "another adapter is being loaded, and the server loads one at a time; try again shortly",
        { retryAfterSeconds: 1 },
      );
    }
    this.#isTaken = true;
    return () => {
      this.#isTaken = false;
    };
  }
}
