// Generation queue: counts the sequences of one model's generations from admission on, and refuses a request that the scheduler
// would refuse. So an overloaded server prepares no prompt that it cannot run.
import { queueFull } from "../../engines/decoding/scheduler/queue/queue-full.ts";
import type { Clock } from "../../runtime/clock.ts";
import { QueueShares } from "../../runtime/queues/queue-shares.ts";
import { RetryAfterEstimator } from "./retry-after-estimator.ts";

export interface GenerationQueueOptions {
  readonly slots: number;
  /** Most sequences without a slot. */
  readonly maxQueue: number;
  readonly clock: Clock;
}

export class GenerationQueue {
  readonly #options: GenerationQueueOptions;
  /** By client: sequences before their first token, and paused ones that have had no token since. */
  readonly #shares = new QueueShares();
  readonly #retryAfter: RetryAfterEstimator;
  /** Sequences that are admitted and have not ended. */
  #count = 0;

  constructor(options: GenerationQueueOptions) {
    this.#options = options;
    this.#retryAfter = new RetryAfterEstimator(options.clock);
  }

  /**
   * Throws `queue_full` if there is no place for `count` more sequences of a client. Places that clients with more waiting
   * would give up count as free; the scheduler decides which sequences it displaces, once the prompt is prepared.
   */
  check(client: string, count: number): void {
    const { slots, maxQueue } = this.#options;
    const free = slots + maxQueue - this.#count;
    if (this.#shares.hasRoomFor(client, count, free)) return;
    throw queueFull(maxQueue, this.#retryAfter.secondsFor(Math.max(this.#count - slots, 1)));
  }

  /** Admits a request: takes places for its sequences. Throws `queue_full`. */
  enter(client: string, count: number): QueuePlaces {
    this.check(client, count);
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

/** The places of one request's sequences. */
export interface QueuePlaces {
  /** A sequence has its first token. Once for each. */
  begun(): void;
  /** A sequence that has begun is paused. Once until `resumed`. */
  paused(): void;
  /** It has a token again, or has ended. */
  resumed(): void;
  /** A sequence has ended, after `tokenCount` tokens. `hasBegun`: begun() was called for it, which happens without a token too. */
  ended(tokenCount: number, hasBegun: boolean): void;
  /** The request has ended: gives all places back. */
  close(): void;
}
