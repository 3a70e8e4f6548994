// Failure count: the failures in a row of one server, and the time for which it then gets no requests.
import type { UpstreamFailure } from "../../engines/remote/upstream.ts";

/** Failures in a row after which a server gets no requests. One is enough if there is no connection to it. */
const mostFailures = 3;
const minBackoffMs = 500;
const maxBackoffMs = 30_000;
/** Wait before a further attempt of a request, if every server has failed or is busy; each further wait is twice as long. */
const retryMs = 200;
const maxRetryMs = 5000;

export class FailureCount {
  #failures = 0;
  #backoffMs = minBackoffMs;

  /** Adds a failure. Returns whether there are too many in a row. */
  add({ kind, message }: UpstreamFailure): boolean {
    this.#failures += kind === "connection" && message === "ECONNREFUSED" ? mostFailures : 1;
    return this.#failures >= mostFailures;
  }

  /** Call when a request has succeeded. */
  reset(): void {
    this.clear();
    this.#backoffMs = minBackoffMs;
  }

  /** Forgets the failures, but not how long the server got no requests. */
  clear(): void {
    this.#failures = 0;
  }

  /** Lets one more failure be too many. */
  allowNone(): void {
    this.#failures = mostFailures - 1;
  }

  /** Time in ms for which the server gets no requests, or no probe. */
  get backoffMs(): number {
    return this.#backoffMs;
  }

  /** Doubles the time. */
  backOff(): void {
    this.#backoffMs = Math.min(2 * this.#backoffMs, maxBackoffMs);
  }
}

/** Returns the wait in ms before the attempt after `attempt`, which is 1 for the first one. */
export function retryDelayMs(attempt: number, { retryAfterMs }: Pick<UpstreamFailure, "retryAfterMs">): number {
  return Math.min(retryAfterMs ?? retryMs * 2 ** (attempt - 1), maxRetryMs);
}
