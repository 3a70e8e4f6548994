// Owns who uses one model: how many requests are in flight on it, since when there is none, and telling whoever waits for
// either. Changed by ManagedModel alone.
import type { Clock } from "../../runtime/clock.ts";

export interface ModelUseOptions {
  /** A model that is watched and not used for so long is idle; 0 = never. */
  readonly idleMs: number;
  readonly clock: Clock;
  readonly onIdle: () => void;
}

export class ModelUse {
  readonly #options: ModelUseOptions;
  #inFlight = 0;
  #lastUsedMs: number;
  #isWatched = false;
  #cancelTimer: (() => void) | null = null;
  #onDrained: (() => void) | null = null;

  constructor(options: ModelUseOptions) {
    this.#options = options;
    this.#lastUsedMs = options.clock.now();
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** When it was last loaded, or a request began or ended, by the clock. */
  get lastUsedMs(): number {
    return this.#lastUsedMs;
  }

  begin(): void {
    this.#inFlight++;
    this.#lastUsedMs = this.#options.clock.now();
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  end(): void {
    this.#inFlight--;
    this.#lastUsedMs = this.#options.clock.now();
    if (this.#inFlight > 0) return;
    this.stopWaiting();
    this.#arm();
  }

  /** Settles when no request is in flight, or somebody calls stopWaiting(). For one caller at a time. */
  async drained(): Promise<void> {
    if (this.#inFlight === 0) return;
    await new Promise<void>((resolve) => {
      this.#onDrained = resolve;
    });
  }

  /** There is nothing to wait for any more: the model is gone. */
  stopWaiting(): void {
    this.#onDrained?.();
    this.#onDrained = null;
  }

  /** It is loaded, which counts as use; from now on it can be idle. */
  watch(): void {
    this.#isWatched = true;
    this.#lastUsedMs = this.#options.clock.now();
    this.#arm();
  }

  unwatch(): void {
    this.#isWatched = false;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  #arm(): void {
    const { idleMs, clock, onIdle } = this.#options;
    if (!this.#isWatched || idleMs === 0 || this.#inFlight > 0) return;
    this.#cancelTimer?.();
    this.#cancelTimer = clock.setTimeout(onIdle, idleMs);
  }
}
