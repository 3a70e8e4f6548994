// Owns counting the requests one model has turned away because it had no room, and saying so in the log: how many, in one
// line every few seconds while it goes on. Used by front.ts.
import { type Clock, realClock } from "../../runtime/clock.ts";
import type { ErrorCode } from "../../runtime/errors.ts";

/** The first line waits for what comes with the first refusal; later ones keep this apart. */
const firstLogMs = 1000;
const logIntervalMs = 5000;

/** The little of a logger that is used here. */
interface Warnings {
  warn(fields: object, message: string): void;
}

export class RejectionCounter {
  /** Refused because the queue was full, and because no slot became free in time. */
  queueFull = 0;
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

  /** Takes the code of the error a request has ended with. */
  note(code: ErrorCode): void {
    if (code === "queue_full") this.queueFull++;
    else if (code === "queue_timeout") this.queueTimeouts++;
    else return;
    this.#unlogged++;
    const waitMs = Math.max(firstLogMs, this.#nextLogMs - this.#clock.now());
    this.#cancelTimer ??= this.#clock.setTimeout(() => this.flush(), waitMs);
  }

  /** Logs what is not logged yet. */
  flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    if (this.#unlogged === 0) return;
    const { queueFull, queueTimeouts } = this;
    const fields = { model: this.#model, refused: this.#unlogged, queueFull, queueTimeouts };
    this.#log.warn(fields, "requests are refused: more come than the model can answer (max_queue, queue_timeout_secs)");
    this.#unlogged = 0;
    this.#nextLogMs = this.#clock.now() + logIntervalMs;
  }
}
