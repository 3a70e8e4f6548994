// Generation queue: counts the admitted sequences of one model; a request for embeddings or scores counts as one sequence. It
// rejects requests that the scheduler would reject later, so that an overloaded server does not prepare prompts that it cannot run.
import { queueFull } from "../../engines/decoding/scheduler/queue/queue-full.ts";
import type { Clock } from "../../runtime/clock.ts";
import { QueueShares } from "../../runtime/queues/queue-shares.ts";
import { RetryAfterEstimator } from "./retry-after-estimator.ts";

export interface GenerationQueueOptions {
  readonly slots: number;
  /** Maximum number of queued sequences, which have no slot. */
  readonly maxQueue: number;
  readonly clock: Clock;
}

export class GenerationQueue {
  readonly #options: GenerationQueueOptions;
  /** Number of waiting sequences by client. A sequence waits until its first token and, after a pause, until its next token. */
  readonly #shares = new QueueShares();
  readonly #retryAfter: RetryAfterEstimator;
  /** Number of sequences that are admitted and have not ended. */
  #count = 0;

  constructor(options: GenerationQueueOptions) {
    this.#options = options;
    this.#retryAfter = new RetryAfterEstimator(options.clock);
  }

  /**
   * Admits a request: reserves a queue entry for each of its sequences. Throws `queue_full` if the queue has no room for them. If
   * another client has more waiting sequences, some of that client's entries count as free, because the scheduler evicts these
   * sequences when the new prompt is prepared.
   */
  enter(client: string, count: number): QueuePlaces {
    const { slots, maxQueue } = this.#options;
    if (!this.#shares.hasRoomFor(client, count, slots + maxQueue - this.#count)) {
      throw queueFull(maxQueue, this.#retryAfter.secondsFor(Math.max(this.#count - slots, 1)));
    }
    let waiting = count;
    let held = count;
    let paused = 0;
    this.#count += count;
    for (let i = 0; i < count; i++) this.#shares.add(client);
    const begun = () => {
      waiting--;
      this.#shares.remove(client);
    };
    const leave = () => {
      held--;
      this.#count--;
      if (waiting > held) begun();
    };
    const resumed = () => {
      paused--;
      this.#shares.remove(client);
    };
    return {
      begun,
      paused: () => {
        paused++;
        this.#shares.add(client);
      },
      resumed,
      ended: (tokenCount, hasBegun) => {
        if (tokenCount > 0) this.#retryAfter.ended();
        if (!hasBegun && waiting > 0) begun();
        leave();
      },
      close: () => {
        while (held > 0) leave();
        while (paused > 0) resumed();
      },
    };
  }
}

/** The queue entries of one request's sequences. */
export interface QueuePlaces {
  /** Call once for each sequence, when the model has sent its first token, or its end without a token. */
  begun(): void;
  /** Call when a sequence that has begun is paused. `resumed` must be called before the next `paused`. */
  paused(): void;
  /** Call when a paused sequence has a new token or has ended. */
  resumed(): void;
  /** Call when a sequence has ended. `hasBegun`: begun() was called for the sequence, which is possible even with 0 tokens. */
  ended(tokenCount: number, hasBegun: boolean): void;
  /** Call when the request has ended. Releases the entries of its sequences that have not ended. */
  close(): void;
}
