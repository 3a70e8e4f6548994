// Owns the requests that wait for one model to be loaded: how many there may be, for how long, and that each leaves at once
// when its client does. Used by ModelLife, which says when they come in.
import type { Clock } from "../../runtime/clock.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";

export interface WaitingRoomOptions {
  readonly modelId: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** One has left unanswered, and it was the last. */
  readonly onDeserted: () => void;
}

interface Waiting {
  readonly enter: () => void;
  readonly refuse: (error: ServerError) => void;
}

export class WaitingRoom {
  readonly #options: WaitingRoomOptions;
  readonly #waiting = new Set<Waiting>();

  constructor(options: WaitingRoomOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  /** Settles when the model takes the request. Rejects with queue_full, model_loading after a while, `cancelled`, or refuseAll()'s. */
  async wait(signal: AbortSignal | null): Promise<void> {
    const { modelId, maxWaiting, timeoutMs, clock } = this.#options;
    if (signal?.aborted) throw left();
    if (this.#waiting.size >= maxWaiting) throw full(modelId, maxWaiting);
    let giveUp = (_error: ServerError): void => {};
    const cancel = () => giveUp(left());
    const cancelTimer = clock.setTimeout(() => giveUp(late(modelId, timeoutMs)), timeoutMs);
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      await new Promise<void>((resolve, reject) => {
        const waiting: Waiting = { enter: resolve, refuse: reject };
        this.#waiting.add(waiting);
        giveUp = (error) => {
          if (!this.#waiting.delete(waiting)) return;
          reject(error);
          if (this.isEmpty) this.#options.onDeserted();
        };
      });
    } finally {
      cancelTimer();
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Lets all in; `begin` is called for each at once, before anything else can happen to the model. */
  admitAll(begin: () => void): void {
    for (const { enter } of this.#takeAll()) {
      begin();
      enter();
    }
  }

  refuseAll(error: ErrorRecord): void {
    for (const { refuse } of this.#takeAll()) refuse(fromErrorRecord(error));
  }

  #takeAll(): Waiting[] {
    const all = [...this.#waiting];
    this.#waiting.clear();
    return all;
  }
}

function full(modelId: string, maxWaiting: number): ServerError {
  const message = `${maxWaiting} requests, as many as may (max_queue), wait for model "${modelId}" to be loaded; try again later`;
  return new ServerError("queue_full", message);
}

function late(modelId: string, timeoutMs: number): ServerError {
  const message = `model "${modelId}" was not loaded within ${timeoutMs} ms (load_timeout_secs); try again later`;
  return new ServerError("model_loading", message);
}

function left(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while its model was being loaded");
}
