// Retry-After estimator: estimates how long a queue takes to drain, from the end times of a model's most recent sequences.
import type { Clock } from "../../runtime/clock.ts";

/** Number of most recent ended sequences that the estimate uses. */
const window = 64;
const longestSeconds = 60;

export class RetryAfterEstimator {
  readonly #clock: Clock;
  /** Ring buffer of the most recent end times, in milliseconds of the clock. */
  readonly #endedMs = new Float64Array(window);
  #count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Call when a sequence has ended and released its slot. */
  ended(): void {
    this.#endedMs[this.#count++ % window] = this.#clock.now();
  }

  /** Returns the estimated time until `count` more sequences have ended, at the recent average rate: 1 to 60 whole seconds. */
  secondsFor(count: number): number {
    const seen = Math.min(this.#count, window);
    if (seen < 2) return 1;
    const oldestMs = this.#endedMs[(this.#count - seen) % window] as number;
    const msEach = (this.#clock.now() - oldestMs) / (seen - 1);
    return Math.min(Math.max(Math.ceil((count * msEach) / 1000), 1), longestSeconds);
  }
}
