// Owns what is remembered of a model that could not be loaded, or did not stay up: why, and how long requests that come are
// told that instead of having it tried again. Made by Standing.
import type { Clock } from "../../runtime/clock.ts";
import type { ErrorRecord, ServerError } from "../../runtime/errors.ts";
import { failed } from "./served-model.ts";

export interface LoadFailureOptions {
  readonly modelId: string;
  readonly error: ServerError;
  readonly clock: Clock;
  /** How long it is not tried again for a request. */
  readonly restMs: number;
}

export class LoadFailure {
  readonly error: ServerError;
  readonly #modelId: string;
  readonly #clock: Clock;
  readonly #retryAtMs: number;

  constructor({ modelId, error, clock, restMs }: LoadFailureOptions) {
    this.error = error;
    this.#modelId = modelId;
    this.#clock = clock;
    this.#retryAtMs = clock.now() + restMs;
  }

  get isRecent(): boolean {
    return this.#clock.now() < this.#retryAtMs;
  }

  /** What requests are told. */
  get record(): ErrorRecord {
    const seconds = Math.ceil((this.#retryAtMs - this.#clock.now()) / 1000);
    return { ...failed(this.#modelId, this.error), retryAfterSeconds: Math.max(1, seconds) };
  }
}
