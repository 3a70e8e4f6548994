// RejectionCounter: counts the requests of one model that were rejected because a queue was full or the wait was too long. It
// logs these counts in one line, at intervals of at least a few seconds.
import { type Clock, realClock } from "../../runtime/clock.ts";
import type { ErrorCode } from "../../runtime/errors.ts";

/** Delay in ms of the first log line, so that it covers a whole burst of rejections, and minimum time between two later lines. */
const firstLogMs = 1000;
const logIntervalMs = 5000;

/** The method of a logger that this module uses. */
interface Warnings {
  warn(fields: object, message: string): void;
}

export class RejectionCounter {
  /** Number of requests rejected because the queue was full. */
  queueFull = 0;
  /** Number of requests that were rejected because they did not get a slot in time. */
  queueTimeouts = 0;
  readonly #model: string;
  readonly #log: Warnings;
  readonly #clock: Clock;
  #unlogged = 0;
  #nextLogMs = 0;
  #cancelTimer: (() => void) | null = null;

  constructor(model: string, log: Warnings, clock: Clock = realClock) {
    this.#model = model;
    this.#log = log;
    this.#clock = clock;
  }

  /** Counts a rejected request if its error is queue_full or queue_timeout. */
  note(code: ErrorCode): void {
    if (code === "queue_full") this.queueFull++;
    else if (code === "queue_timeout") this.queueTimeouts++;
    else return;
    this.#unlogged++;
    const waitMs = Math.max(firstLogMs, this.#nextLogMs - this.#clock.now());
    this.#cancelTimer ??= this.#clock.setTimeout(() => this.flush(), waitMs);
  }

  /** Logs the rejections that have not been logged yet. */
  flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    if (this.#unlogged === 0) return;
    const { queueFull, queueTimeouts } = this;
    const fields = { model: this.#model, refused: this.#unlogged, queueFull, queueTimeouts };
    this.#log.warn(
      fields,
      "requests are refused: more arrive than the model can answer (max_queue, queue_timeout_secs)",
    );
    this.#unlogged = 0;
    this.#nextLogMs = this.#clock.now() + logIntervalMs;
  }
}
