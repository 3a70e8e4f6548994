// Waiting room: the requests that wait for one model to be loaded. Limits their number and their time, shares the places by
// client, and drops a request when its client leaves. Used by ManagedModel, which admits them.

import type { Clock } from "../../runtime/clock.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import { QueueShares } from "../../runtime/queues/queue-shares.ts";

export interface WaitingRoomOptions {
  readonly modelId: string;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** One has left unanswered, and it was the last. */
  readonly onDeserted: () => void;
}

interface Waiting {
  readonly client: string;
  readonly enter: () => void;
  readonly refuse: (error: ServerError) => void;
}

export class WaitingRoom {
  readonly #options: WaitingRoomOptions;
  readonly #waiting = new Set<Waiting>();
  readonly #shares = new QueueShares();

  constructor(options: WaitingRoomOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  /**
   * Settles when the model takes the request. Rejects with queue_full, at once or when another client's request takes its
   * place, with model_loading after a while, with `cancelled`, or as refuseAll() says.
   */
  async wait(signal: AbortSignal | null, client: string): Promise<void> {
    const { modelId, timeoutMs, clock } = this.#options;
    if (signal?.aborted) throw left();
    this.#makeRoom(client);
    let giveUp = (_error: ServerError): void => {};
    const cancel = () => giveUp(left());
    const cancelTimer = clock.setTimeout(() => giveUp(late(modelId, timeoutMs)), timeoutMs);
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      await new Promise<void>((resolve, reject) => {
        const waiting: Waiting = { client, enter: resolve, refuse: reject };
        this.#waiting.add(waiting);
        this.#shares.add(client);
        giveUp = (error) => {
          if (!this.#remove(waiting)) return;
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

  /** Throws queue_full where neither a place is free nor another client's request gives its own up. */
  #makeRoom(client: string): void {
    const { modelId, maxWaiting } = this.#options;
    const newestOf = (other: string) => this.#newestOf(other);
    const displaced = this.#shares.displacedBy(client, 1, maxWaiting - this.#waiting.size, newestOf);
    if (displaced === null) throw full(modelId, maxWaiting);
    for (const waiting of displaced) {
      this.#remove(waiting);
      waiting.refuse(displacedFrom(modelId, maxWaiting));
    }
  }

  *#newestOf(client: string): Generator<readonly Waiting[]> {
    for (const waiting of [...this.#waiting].reverse()) if (waiting.client === client) yield [waiting];
  }

  /** False where it does not wait any more. */
  #remove(waiting: Waiting): boolean {
    if (!this.#waiting.delete(waiting)) return false;
    this.#shares.remove(waiting.client);
    return true;
  }

  #takeAll(): Waiting[] {
    const all = [...this.#waiting];
    for (const waiting of all) this.#remove(waiting);
    return all;
  }
}

function full(modelId: string, maxWaiting: number): ServerError {
  const message = `${maxWaiting} requests, as many as may (max_queue), wait for model "${modelId}" to be loaded; try again later`;
  return new ServerError("queue_full", message);
}

function displacedFrom(modelId: string, maxWaiting: number): ServerError {
  const message =
    `${maxWaiting} requests, as many as may (max_queue), wait for model "${modelId}" to be loaded, most of them this ` +
    "client's: a request of another client took the place of this one; try again later";
  return new ServerError("queue_full", message);
}

function late(modelId: string, timeoutMs: number): ServerError {
  const message = `model "${modelId}" was not loaded within ${timeoutMs} ms (load_timeout_secs); try again later`;
  return new ServerError("model_loading", message);
}

function left(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while its model was being loaded");
}
