// Running call: the state of one call that can be cancelled.
import { deferred } from "../../runtime/deferred.ts";

export class RunningCall {
  readonly #cancelled = deferred();
  /** Resolves when the call has been cancelled and runs no process (any longer). */
  readonly cancelled = this.#cancelled.promise;
  #isCancelled = false;
  #stop: (() => Promise<void>) | null = null;

  get isCancelled(): boolean {
    return this.#isCancelled;
  }

  cancel(): void {
    this.#isCancelled = true;
    if (this.#stop === null) this.#cancelled.resolve();
    else void this.#stop();
  }

  /** Waits for work that runs processes. `stop` ends the processes. Work that begins after the cancellation is stopped immediately. */
  async during<T>(stop: () => Promise<void>, work: Promise<T>): Promise<T> {
    this.#stop = stop;
    if (this.#isCancelled) void stop();
    try {
      return await work;
    } finally {
      this.#stop = null;
      if (this.#isCancelled) this.#cancelled.resolve();
    }
  }
}
