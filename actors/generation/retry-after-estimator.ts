// Owns the guess how long a queue takes to drain, from when sequences of a model ended lately: an honest Retry-After.
import type { Clock } from "../../runtime/clock.ts";

/** Ends that are remembered. */
const window = 64;
const longestSeconds = 60;

export class RetryAfterEstimator {
  readonly #clock: Clock;
  /** When the last ones ended, a ring. */
  readonly #endedMs = new Float64Array(window);
  #count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A sequence has given its slot back. */
  ended(): void {
    this.#endedMs[this.#count++ % window] = this.#clock.now();
  }

  /** Whole seconds until so many more have ended, if it goes on as it did lately: 1 to 60. */
  secondsFor(count: number): number {
    const seen = Math.min(this.#count, window);
    if (seen < 2) return 1;
    const oldestMs = this.#endedMs[(this.#count - seen) % window] as number;
    const msEach = (this.#clock.now() - oldestMs) / (seen - 1);
    return Math.min(Math.max(Math.ceil((count * msEach) / 1000), 1), longestSeconds);
  }
}
