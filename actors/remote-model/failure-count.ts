// Failure count: counts consecutive failures of one server, and determines for how long the server then gets no requests.
import type { UpstreamFailure } from "../../engines/remote/upstream.ts";

/** Number of consecutive failures after which a server gets no requests. A refused connection counts as this many failures. */
const mostFailures = 3;
const minBackoffMs = 500;
const maxBackoffMs = 30_000;
/** Delay in ms before a request is retried, if every server has failed or is busy. The delay doubles with each attempt. */
const retryMs = 200;
const maxRetryMs = 5000;

export class FailureCount {
  #failures = 0;
  #backoffMs = minBackoffMs;

  /** Adds a failure. Returns whether there are too many consecutive failures. */
  add(failure: UpstreamFailure): boolean {
    this.#failures += isRefusedConnection(failure) ? mostFailures : 1;
    return this.#failures >= mostFailures;
  }

  /** Resets the count and the backoff time. Call when a request has succeeded. */
  reset(): void {
    this.clear();
    this.#backoffMs = minBackoffMs;
  }

  /** Resets the count, but keeps the backoff time. */
  clear(): void {
    this.#failures = 0;
  }

  /** Sets the count so that the next failure is already one too many. */
  allowNone(): void {
    this.#failures = mostFailures - 1;
  }

  /** Backoff time in ms, during which the server gets no requests or probes. */
  get backoffMs(): number {
    return this.#backoffMs;
  }

  /** Doubles the backoff time. */
  backOff(): void {
    this.#backoffMs = Math.min(2 * this.#backoffMs, maxBackoffMs);
  }
}

/** Returns whether a failure shows that no program listens at the address. Other failures may be those of a few connections. */
export function isRefusedConnection({ kind, message }: UpstreamFailure): boolean {
  return kind === "connection" && message === "ECONNREFUSED";
}

/** Returns the delay in ms after the failed attempt number `attempt`, counted from 1. */
export function retryDelayMs(attempt: number, { retryAfterMs }: Pick<UpstreamFailure, "retryAfterMs">): number {
  return Math.min(retryAfterMs ?? retryMs * 2 ** (attempt - 1), maxRetryMs);
}
