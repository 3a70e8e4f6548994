// GenerationQueue: counts the sequences of one model's runs, from the moment a run is accepted, and refuses a run that the scheduler
// would have no place for. So an overloaded server prepares no prompt that it cannot run.
import { queueFull } from "../../engines/decoding/scheduler/queue/queue-full.ts";
import type { Clock } from "../../runtime/clock.ts";
import { QueueShares } from "../../runtime/queues/queue-shares.ts";
import { RetryAfterEstimator } from "./retry-after-estimator.ts";

export interface RunQueueOptions {
  readonly slots: number;
  /** Most sequences without a slot. */
  readonly maxQueue: number;
  readonly clock: Clock;
}

export class GenerationQueue {
  readonly #options: RunQueueOptions;
  /** Counts what waits for its first token, and what has stood still since its last one because its reader is behind. */
  readonly #shares = new QueueShares();
  readonly #pace: RetryAfterEstimator;
  /** Sequences of runs that have been accepted and go on. */
  #count = 0;

  constructor(options: RunQueueOptions) {
    this.#options = options;
    this.#pace = new RetryAfterEstimator(options.clock);
  }

  /**
   * Throws `queue_full` where `count` more sequences of a client find no place. Places that clients with more waiting would
   * give up count as free; the scheduler decides which of them give way, once the prompt is prepared.
   */
  check(client: string, count: number): void {
    const { slots, maxQueue } = this.#options;
    const free = slots + maxQueue - this.#count;
    if (this.#shares.hasRoomFor(client, count, free)) return;
    throw queueFull(maxQueue, this.#pace.secondsFor(Math.max(this.#count - slots, 1)));
  }

  /** Accepts a run: takes places for its sequences. Throws `queue_full`. */
  enter(client: string, count: number): RunPlaces {
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
    const goesOn = () => {
      paused--;
      this.#shares.remove(client);
    };
    return {
      begun,
      paused: () => {
        paused++;
        this.#shares.add(client);
      },
      goesOn,
      ended: (tokenCount) => {
        if (tokenCount > 0) this.#pace.ended();
        else if (waiting > 0) begun();
        leave();
      },
      close: () => {
        while (held > 0) leave();
        while (paused > 0) goesOn();
      },
    };
  }
}

/** The places of one run's sequences. */
export interface RunPlaces {
  /** One of its sequences has its first token. Once for each. */
  begun(): void;
  /** One of its sequences that have begun is paused. Once until it goes on. */
  paused(): void;
  /** It has a token again, or has ended. */
  goesOn(): void;
  /** One of its sequences has ended, after `tokenCount` tokens. */
  ended(tokenCount: number): void;
  /** The run has ended. */
  close(): void;
}
