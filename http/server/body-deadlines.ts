// Deadlines of bodies that are arriving: a body must be whole in time, and must not stand still meanwhile. One timer looks
// after all of them, so that a request whose body comes with its head costs no timer.
import { ServerError } from "../../runtime/errors.ts";

/** A body stands still when fewer than LEAST_BYTES of it come in this time. */
const STILL_LIMIT_MS = 10_000;
const LEAST_BYTES = 1024;
const CHECK_EVERY_MS = 1000;

/** Told why its body is given up. */
export type OnLate = (refusal: ServerError) => void;

/** One body while it arrives. */
export class ArrivingBody {
  readonly startedAt = performance.now();
  readonly onLate: OnLate;
  /** When the last LEAST_BYTES of it were complete. */
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

  /** `limitMs` is the longest that one body may take. */
  constructor(limitMs: number) {
    this.#limitMs = limitMs;
    this.#timer = setInterval(() => this.#check(), Math.min(CHECK_EVERY_MS, limitMs)).unref();
  }

  add(onLate: OnLate): ArrivingBody {
    const body = new ArrivingBody(onLate);
    this.#arriving.add(body);
    return body;
  }

  /** It is whole, or nobody waits for it any more. */
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
