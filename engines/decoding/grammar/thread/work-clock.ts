// WorkClock: processor time of a grammar thread's work, which does not depend on the load of the machine.

export class WorkClock {
  readonly #nowMs: () => number;
  #lastMs: number;

  /** `nowMs`: returns the processor time of the thread in ms. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#lastMs = nowMs();
  }

  /** Returns the processor time of the thread in ms. */
  read(): number {
    this.#lastMs = this.#nowMs();
    return this.#lastMs;
  }

  /**
   * Returns the processor time in ms of the work that has just taken `tookMs` by the clock on the wall. Quick work since the
   * last call of a method counts as well, up to `tookMs`.
   */
  lap(tookMs: number): number {
    const lastMs = this.#lastMs;
    return Math.min(Math.max(this.read() - lastMs, 0), tookMs);
  }
}
