// Deadlines of request bodies: a body must be complete in time and must not stall. One timer checks all bodies, so that a body
// that arrives together with the headers needs no timer.
import { ServerError } from "../../runtime/errors.ts";

/** A body stalls if fewer than LEAST_BYTES bytes arrive within STILL_LIMIT_MS. */
const STILL_LIMIT_MS = 10_000;
const LEAST_BYTES = 1024;
const CHECK_EVERY_MS = 1000;

/** Called when a body misses a deadline, with the error to send. */
export type OnLate = (refusal: ServerError) => void;

/** Request body that is still arriving. */
export class ArrivingBody {
  readonly startedAt = performance.now();
  readonly onLate: OnLate;
  /**
   * Time in ms at which the last complete block of LEAST_BYTES bytes had arrived. Equals the start time until the first
   * complete block.
   */
  movedAt = this.startedAt;
  #bytesSince = 0;

  constructor(onLate: OnLate) {
    this.onLate = onLate;
  }

  onBytes(count: number): void {
    this.#bytesSince += count;
    if (this.#bytesSince < LEAST_BYTES) return;
    this.#bytesSince = 0;
    this.movedAt = performance.now();
  }
}

export class BodyDeadlines {
  readonly #limitMs: number;
  readonly #arriving = new Set<ArrivingBody>();
  readonly #timer: NodeJS.Timeout;

  /** `limitMs`: maximum time in ms until the body is complete. */
  constructor(limitMs: number) {
    this.#limitMs = limitMs;
    this.#timer = setInterval(() => this.#check(), Math.min(CHECK_EVERY_MS, limitMs)).unref();
  }

  add(onLate: OnLate): ArrivingBody {
    const body = new ArrivingBody(onLate);
    this.#arriving.add(body);
    return body;
  }

  /** Stops checking a body. Called when the body is complete or its request has ended. */
  delete(body: ArrivingBody): void {
    this.#arriving.delete(body);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const now = performance.now();
    for (const body of this.#arriving) {
      const isLate = now - body.startedAt > this.#limitMs;
      if (!isLate && now - body.movedAt <= STILL_LIMIT_MS) continue;
      this.#arriving.delete(body);
      body.onLate(isLate ? tooSlow(this.#limitMs) : stoodStill);
    }
  }
}

function tooSlow(limitMs: number): ServerError {
  const message = `expected the whole body within ${limitMs / 1000} s (request_timeout_secs); send it faster`;
  return new ServerError("request_timeout", message);
}

const stoodStill = new ServerError(
  "request_timeout",
  `expected at least ${LEAST_BYTES} bytes of the body in ${STILL_LIMIT_MS / 1000} s; send the request again`,
);
