// Wake signal: wakes a sleeping loop before its wait time is over.

/** Maximum delay of a timer in ms. For a longer wait, no timer is set, and only wake() ends the wait. */
const longestTimerMs = 2 ** 31 - 2;

export class WakeSignal {
  #wake: (() => void) | null = null;

  /** Waits for wake(), but not longer than `ms` milliseconds. */
  async wait(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      // One ms is added because timers round down to a whole millisecond.
      if (ms < longestTimerMs) timer = setTimeout(resolve, Math.max(ms, 0) + 1);
    });
    clearTimeout(timer);
    this.#wake = null;
  }

  /** Wakes the loop. Does nothing if it is awake. */
  wake(): void {
    this.#wake?.();
  }
}
