// Owns a loop's wait for something to do: it ends when it is woken, or when its time is over. Used by the step loop.

/** What a timer can hold; a longer wait has no end worth a timer. */
const longestTimerMs = 2 ** 31 - 2;

export class WakeSignal {
  #wake: (() => void) | null = null;

  /** Waits for wake(), so many ms at most. */
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

  /** Does nothing where nobody waits. */
  wake(): void {
    this.#wake?.();
  }
}
