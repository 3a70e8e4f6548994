// Owns the rule that one adapter at a time is loaded on the whole server. Shared by the adapters of all models: reading,
// hashing and checking take disk and a core that requests need too.
import { ServerError } from "../../runtime/errors.ts";

export class AdapterLoadLock {
  #isTaken = false;

  /** Returns how to leave, to be called once. Throws lora_load_busy while somebody else is in. */
  enter(): () => void {
    if (this.#isTaken) {
      throw new ServerError(
        "lora_load_busy",
        "another adapter is being loaded, and they are loaded one at a time; try again shortly",
        { retryAfterSeconds: 1 },
      );
    }
    this.#isTaken = true;
    return () => {
      this.#isTaken = false;
    };
  }
}
