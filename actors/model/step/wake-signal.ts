// Wake signal: lets a loop sleep until it is woken or its time is over.

/** Longest delay of a timer; longer waits get none. */
const longestTimerMs = 2 ** 31 - 2;

export class WakeSignal {
  #wake: (() => void) | null = null;

  /** Waits for wake(), at most `ms` milliseconds. */
  async wait(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      // Timers round down to a whole millisecond.
      if (ms < longestTimerMs) timer = setTimeout(resolve, Math.max(ms, 0) + 1);
    });
    clearTimeout(timer);
    this.#wake = null;
  }

  /** Does nothing if the loop is awake. */
  wake(): void {
    this.#wake?.();
  }
}
