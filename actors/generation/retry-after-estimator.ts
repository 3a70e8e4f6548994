// Retry-After estimator: estimates how long a queue takes to drain, from the times at which sequences of a model last ended.
import type { Clock } from "../../runtime/clock.ts";

/** Number of ends that the estimate is made of. */
const window = 64;
const longestSeconds = 60;

export class RetryAfterEstimator {
  readonly #clock: Clock;
  /** Ring of the last ends, milliseconds of the clock. */
  readonly #endedMs = new Float64Array(window);
  #count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A sequence has given its slot back. */
  ended(): void {
    this.#endedMs[this.#count++ % window] = this.#clock.now();
  }

  /** Whole seconds until `count` more sequences have ended, at the average rate of the last ones: 1 to 60. */
  secondsFor(count: number): number {
    const seen = Math.min(this.#count, window);
    if (seen < 2) return 1;
    const oldestMs = this.#endedMs[(this.#count - seen) % window] as number;
    const msEach = (this.#clock.now() - oldestMs) / (seen - 1);
    return Math.min(Math.max(Math.ceil((count * msEach) / 1000), 1), longestSeconds);
  }
}
