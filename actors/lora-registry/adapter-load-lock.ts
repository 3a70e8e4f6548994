// AdapterLoadLock: lets the whole server load one adapter at a time, because reading, hashing and checking take disk
// bandwidth and a core that requests need too. Shared by the adapters of all models.
import { ServerError } from "../../runtime/errors.ts";

export class AdapterLoadLock {
  #isTaken = false;

  /** Takes the lock; the returned function releases it, once. Throws lora_load_busy if it is taken. */
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
