// Call timer: enforces the time limit of a tool call. A progress report restarts the limit, up to a maximum total time. The time
// in which the user answers a question does not count.
import type { Clock } from "../../runtime/clock.ts";

/** Maximum total time of a call that reports progress, as a multiple of its limit without progress. */
export const totalLimitFactor = 10;

export class CallTimer {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #onTimeout: () => void;
  #leftMs: number;
  #beganAt = 0;
  /** Cancels the timer; null = the timer is paused or stopped. */
  #cancel: (() => void) | null = null;
  /** Number of pauses that have not ended. */
  #pauses = 0;

  constructor(clock: Clock, limitMs: number, onTimeout: () => void) {
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#onTimeout = onTimeout;
    this.#leftMs = limitMs * totalLimitFactor;
    this.#begin();
  }

  onProgress(): void {
    if (this.#cancel === null) return;
    this.stop();
    this.#begin();
  }

  pause(): void {
    this.#pauses++;
    this.stop();
  }

  resume(): void {
    if (--this.#pauses === 0) this.#begin();
  }

  stop(): void {
    if (this.#cancel === null) return;
    this.#cancel();
    this.#cancel = null;
    this.#leftMs -= this.#clock.now() - this.#beganAt;
  }

  #begin(): void {
    this.#beganAt = this.#clock.now();
    this.#cancel = this.#clock.setTimeout(this.#onTimeout, Math.max(0, Math.min(this.#limitMs, this.#leftMs)));
  }
}
