// Running call: the state of one call that can be cancelled.

export class RunningCall {
  /** Resolves when the call has been cancelled and runs no process (any longer). */
  readonly cancelled: Promise<void>;
  #isCancelled = false;
  #stop: (() => Promise<void>) | null = null;
  #onCancelled: () => void = () => {};

  constructor() {
    this.cancelled = new Promise((resolve) => {
      this.#onCancelled = resolve;
    });
  }

  get isCancelled(): boolean {
    return this.#isCancelled;
  }

  cancel(): void {
    this.#isCancelled = true;
    if (this.#stop === null) this.#onCancelled();
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
      if (this.#isCancelled) this.#onCancelled();
    }
  }
}
