// Owns who takes tokens: each consumer's live sequences and the frame that is being filled for it, and when frames leave.
// Used by the step loop.
import { performance } from "node:perf_hooks";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import { FrameBuilder } from "./frame.ts";
import type { GenerationSequence, Subscriber } from "./sequence/generation-sequence.ts";

interface Registered {
  readonly sequences: Map<number, GenerationSequence>;
  readonly frame: FrameBuilder;
}

export class Subscribers {
  /** A first or last token, or a full buffer: the frames leave with this step. */
  isUrgent = false;
  readonly #registered = new Map<Subscriber, Registered>();
  readonly #rowsPerStep: number;
  readonly #intervalMs: number;
  #lastFlushMs = 0;

  /** Frames leave `intervalMs` after the ones before, if nothing is urgent. */
  constructor(rowsPerStep: number, intervalMs: number) {
    this.#rowsPerStep = rowsPerStep;
    this.#intervalMs = intervalMs;
  }

  /** Throws `conflict` for an id the consumer uses already. */
  checkFree(consumer: Subscriber, id: number): void {
    if (this.find(consumer, id)) throw new ServerError("conflict", `sequence ${id} is running already`);
  }

  add(sequence: GenerationSequence): void {
    const { consumer, id } = sequence.live;
    let registered = this.#registered.get(consumer);
    if (!registered) {
      registered = { sequences: new Map(), frame: new FrameBuilder(this.#rowsPerStep) };
      this.#registered.set(consumer, registered);
    }
    registered.sequences.set(id, sequence);
  }

  find(consumer: Subscriber, id: number): GenerationSequence | undefined {
    return this.#registered.get(consumer)?.sequences.get(id);
  }

  frameOf({ live }: GenerationSequence): FrameBuilder | undefined {
    return this.#registered.get(live.consumer)?.frame;
  }

  sequencesOf(consumer: Subscriber): GenerationSequence[] {
    return [...(this.#registered.get(consumer)?.sequences.values() ?? [])];
  }

  all(): Subscriber[] {
    return [...this.#registered.keys()];
  }

  remove({ live }: GenerationSequence): void {
    this.#registered.get(live.consumer)?.sequences.delete(live.id);
  }

  drop(consumer: Subscriber): void {
    this.#registered.delete(consumer);
  }

  /** Tells the consumer of a sequence why that has ended, behind all it has said. */
  fail({ live: { consumer, id } }: GenerationSequence, error: ErrorRecord): void {
    const built = this.#registered.get(consumer)?.frame.take();
    if (built) consumer.send(built);
    consumer.send({ ...emptyFrame, failed: [{ id, error }] });
  }

  flush(): void {
    this.#lastFlushMs = performance.now();
    this.isUrgent = false;
    for (const [consumer, { frame }] of this.#registered) {
      const built = frame.take();
      if (built) consumer.send(built);
    }
  }

  flushIfDue(): void {
    if (this.isUrgent || performance.now() - this.#lastFlushMs >= this.#intervalMs) this.flush();
  }
}

const emptyFrame = { rows: new Int32Array(0), logprobs: null, cached: null, prompts: [], failed: [] };
