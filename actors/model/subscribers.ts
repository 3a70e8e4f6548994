// Subscribers: the live sequences of each subscriber and the frame that collects its tokens. Decides when frames are sent.
import { performance } from "node:perf_hooks";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import { FrameBuilder } from "./frame.ts";
import type { LiveOptions, Subscriber } from "./sequence/generation-sequence.ts";

/** A sequence with its subscriber and its id, which is unique within the subscriber. */
export interface SubscribedSequence {
  readonly live: Pick<LiveOptions, "id" | "subscriber">;
}

interface Registered<S> {
  readonly sequences: Map<number, S>;
  readonly frame: FrameBuilder;
}

export class Subscribers<S extends SubscribedSequence> {
  /** Whether all frames must be sent after this step, because a frame is full or contains a first or last token. */
  isUrgent = false;
  readonly #registered = new Map<Subscriber, Registered<S>>();
  readonly #rowsPerStep: number;
  readonly #intervalMs: number;
  #lastFlushMs = 0;

  /** `intervalMs`: minimum time in ms between two frames, except urgent ones. */
  constructor(rowsPerStep: number, intervalMs: number) {
    this.#rowsPerStep = rowsPerStep;
    this.#intervalMs = intervalMs;
  }

  /** Checks that an id is free. Throws `conflict` if the subscriber already uses it. */
  checkFree(subscriber: Subscriber, id: number): void {
    if (this.find(subscriber, id)) throw new ServerError("conflict", `sequence ${id} is already running`);
  }

  add(sequence: S): void {
    const { subscriber, id } = sequence.live;
    let registered = this.#registered.get(subscriber);
    if (!registered) {
      registered = { sequences: new Map(), frame: new FrameBuilder(this.#rowsPerStep) };
      this.#registered.set(subscriber, registered);
    }
    registered.sequences.set(id, sequence);
  }

  find(subscriber: Subscriber, id: number): S | undefined {
    return this.#registered.get(subscriber)?.sequences.get(id);
  }

  frameOf({ live }: S): FrameBuilder | undefined {
    return this.#registered.get(live.subscriber)?.frame;
  }

  sequencesOf(subscriber: Subscriber): S[] {
    return [...(this.#registered.get(subscriber)?.sequences.values() ?? [])];
  }

  all(): Subscriber[] {
    return [...this.#registered.keys()];
  }

  remove({ live }: S): void {
    this.#registered.get(live.subscriber)?.sequences.delete(live.id);
  }

  drop(subscriber: Subscriber): void {
    this.#registered.delete(subscriber);
  }

  /** Sends the error of a sequence to its subscriber, after all its tokens. */
  fail({ live: { subscriber, id } }: S, error: ErrorRecord): void {
    const built = this.#registered.get(subscriber)?.frame.take();
    if (built) subscriber.send(built);
    subscriber.send({ ...emptyFrame, failed: [{ id, error }] });
  }

  flush(): void {
    this.#lastFlushMs = performance.now();
    this.isUrgent = false;
    for (const [subscriber, { frame }] of this.#registered) {
      const built = frame.take();
      if (built) subscriber.send(built);
    }
  }

  /** Time in ms until frames must be sent. */
  get dueInMs(): number {
    return this.isUrgent ? 0 : Math.max(this.#intervalMs - (performance.now() - this.#lastFlushMs), 0);
  }

  flushIfDue(): void {
    if (this.isUrgent || performance.now() - this.#lastFlushMs >= this.#intervalMs) this.flush();
  }
}

const emptyFrame = { rows: new Int32Array(0), logprobs: null, cached: null, prompts: [], failed: [] };
