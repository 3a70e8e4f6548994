// Owns the loop of a model place: take messages -> schedule -> one forward pass -> sample -> frames -> one turn of the
// event loop. It owns the model, the scheduler's state and the sampler's; nothing else runs on its thread.
import { performance } from "node:perf_hooks";
import { Batch } from "../../engines/batch.ts";
import type { Sampling } from "../../engines/chat.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import { Sampler, type SamplingState } from "../../engines/sampler/sampler.ts";
import { Scheduler, type SchedulerLimits } from "../../engines/scheduler/scheduler.ts";
import { Sequence, type SequenceOptions } from "../../engines/scheduler/sequence.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { ModelStatistics, SequenceJob, TokenFrame } from "../messages.ts";
import { FrameBuilder } from "./frame.ts";

/** Whoever asked for sequences and takes their tokens. Compared by identity. */
export interface Consumer {
  send(frame: TokenFrame): void;
}

/** Totals since the start. Milliseconds. */
export interface StepStatistics {
  steps: number;
  tokens: number;
  /** Inside the engine's forward pass. */
  engineMs: number;
  /** Whole steps: scheduling, forward pass, sampling, frames. */
  totalMs: number;
}

class LiveSequence extends Sequence {
  readonly id: number;
  readonly consumer: Consumer;
  readonly sampling: SamplingState;
  /** When it was first scheduled, in ms; 0 = not yet. */
  startedMs = 0;

  constructor(options: SequenceOptions, id: number, consumer: Consumer, sampling: SamplingState) {
    super(options);
    this.id = id;
    this.consumer = consumer;
    this.sampling = sampling;
  }
}

export class StepLoop {
  readonly statistics: StepStatistics = { steps: 0, tokens: 0, engineMs: 0, totalMs: 0 };
  readonly #model: LoadedModel;
  readonly #scheduler: Scheduler<LiveSequence>;
  readonly #sampler: Sampler;
  readonly #batch: Batch;
  readonly #live = new Map<Consumer, Map<number, LiveSequence>>();
  readonly #frames = new Map<Consumer, FrameBuilder>();
  readonly #frameIntervalMs: number;
  #lastFlushMs = 0;
  /** A first or last token, or a full buffer: the frames leave with this step. */
  #isUrgent = false;
  #wake: (() => void) | null = null;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /**
   * Tokens of short steps leave together, up to `frameIntervalMs` after the frame before: on a machine whose cores are
   * all computing, waking the readers costs more than a step's share of it. 0 sends each step's at once.
   */
  constructor(model: LoadedModel, limits: SchedulerLimits, frameIntervalMs: number) {
    this.#frameIntervalMs = frameIntervalMs;
    this.#model = model;
    this.#scheduler = new Scheduler(model, limits);
    this.#sampler = Sampler.create(model.card.vocabSize);
    this.#batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  }

  /** Totals, and how many sequences there are now. */
  snapshot(): ModelStatistics {
    const { waitingCount, runningCount, parkedCount, preemptionCount } = this.#scheduler;
    return {
      ...this.statistics,
      slots: this.#model.capacity.maxSequences,
      running: runningCount,
      waiting: waitingCount,
      parked: parkedCount,
      preemptions: preemptionCount,
    };
  }

  /** Queues all jobs or, when one is refused, none. */
  submit(consumer: Consumer, jobs: readonly SequenceJob[]): void {
    this.#advance();
    const added: number[] = [];
    try {
      for (const job of jobs) {
        this.#add(consumer, job);
        added.push(job.id);
      }
    } catch (error) {
      this.cancel(consumer, added);
      throw error;
    }
    this.#wake?.();
  }

  cancel(consumer: Consumer, ids: readonly number[]): void {
    for (const id of ids) {
      const sequence = this.#live.get(consumer)?.get(id);
      if (!sequence) continue;
      this.#scheduler.cancel(sequence);
      this.#forget(sequence);
    }
    // The slot of a paused sequence may be what others wait for.
    this.#wake?.();
  }

  setPaused(consumer: Consumer, ids: readonly number[], paused: boolean): void {
    this.#advance();
    for (const id of ids) {
      const sequence = this.#live.get(consumer)?.get(id);
      if (sequence) this.#scheduler.setPaused(sequence, paused);
    }
    this.#wake?.();
  }

  /** Cancels everything of a consumer that is gone. */
  drop(consumer: Consumer): void {
    this.cancel(consumer, [...(this.#live.get(consumer)?.keys() ?? [])]);
    this.#live.delete(consumer);
    this.#frames.delete(consumer);
  }

  /** Runs until stop(). Rejects when the engine fails; every sequence has been told by then. */
  async run(): Promise<void> {
    while (!this.#stopped) {
      if (this.step()) await nextTurn();
      else await this.#idle();
    }
  }

  /** Ends run() after the step under way. Every sequence is cancelled: the model may be disposed once run() has ended. */
  stop(): void {
    this.#stopped = true;
    for (const consumer of [...this.#live.keys()]) this.drop(consumer);
    this.#wake?.();
  }

  /** One step, synchronous. Returns false when there was nothing to run. */
  step(): boolean {
    const started = performance.now();
    this.#advance(started);
    if (!this.#scheduler.schedule(this.#batch)) return false;
    // A step with a prompt in it is a long one: nothing waits for it.
    if (this.#batch.tokenCount > this.#batch.rowCount) this.#flush();
    let engineMs = 0;
    try {
      const before = performance.now();
      const output = this.#model.step(this.#batch);
      engineMs = performance.now() - before;
      this.#takeTokens(output.logits, output.logitsRow, started);
    } catch (error) {
      this.#failAll(toErrorRecord(error));
      throw error;
    }
    this.#scheduler.endStep(performance.now() - started);
    if (this.#isUrgent || performance.now() - this.#lastFlushMs >= this.#frameIntervalMs) this.#flush();
    this.statistics.steps++;
    this.statistics.engineMs += engineMs;
    this.statistics.totalMs += performance.now() - started;
    return true;
  }

  /** Waits for a message, or for the time at which there is something to do without one. */
  async #idle(): Promise<void> {
    this.#flush();
    this.#scheduler.checkIntegrity();
    const waitMs = this.#scheduler.nextChangeMs - performance.now();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      // Timers round down to a whole millisecond.
      if (waitMs < longestTimerMs) this.#timer = setTimeout(resolve, Math.max(waitMs, 0) + 1);
    });
    clearTimeout(this.#timer);
    this.#wake = null;
  }

  /** Tells the scheduler the time, and those whose time in the queue is over that it is. */
  #advance(nowMs = performance.now()): void {
    for (const sequence of this.#scheduler.advance(nowMs)) {
      this.#fail(sequence.consumer, [sequence.id], queueTimeout(nowMs - sequence.queuedMs));
    }
  }

  #add(consumer: Consumer, job: SequenceJob): void {
    const room = this.#model.capacity.sequenceTokens - job.prompt.length;
    const options = {
      client: job.client,
      // The other choices of a request may wait for its first one to end.
      hasQueueLimit: job.choice === 0,
      prompt: job.prompt,
      maxNewTokens: job.maxNewTokens ?? Math.max(room, 1),
      ignoreEos: job.ignoreEos,
      adapter: job.adapter,
    };
    let sequences = this.#live.get(consumer);
    if (!sequences) {
      sequences = new Map();
      this.#live.set(consumer, sequences);
      this.#frames.set(consumer, new FrameBuilder(this.#model.capacity.maxSequences));
    }
    if (sequences.has(job.id)) throw new ServerError("conflict", `sequence ${job.id} is running already`);
    const sampling = this.#openSampling(job.sampling, job);
    const sequence = new LiveSequence(options, job.id, consumer, sampling);
    this.#scheduler.add(sequence);
    sequences.set(job.id, sequence);
  }

  #openSampling(sampling: Sampling, job: SequenceJob): SamplingState {
    return this.#sampler.open(sampling, job.choice, job.prompt, job.breakers);
  }

  #takeTokens(logits: Float32Array, logitsRow: Int32Array, stepStarted: number): void {
    const { rows } = this.#scheduler;
    // accept() drops finished sequences from the scheduler's lists, not from `rows`.
    for (let row = 0; row < rows.length; row++) {
      const sequence = rows[row] as LiveSequence;
      if (sequence.startedMs === 0) sequence.startedMs = stepStarted;
      const logitsIndex = logitsRow[row] as number;
      if (logitsIndex < 0) continue;
      const token = this.#sample(sequence, logits, logitsIndex);
      if (token === null) continue;
      const finish = this.#scheduler.accept(sequence, token);
      const elapsedMs = performance.now() - sequence.startedMs;
      const frame = this.#frames.get(sequence.consumer);
      frame?.add(sequence.id, token, finish, elapsedMs);
      const isFirst = sequence.total === sequence.promptLength + 1;
      if (isFirst || finish !== "none" || frame?.isFull) this.#isUrgent = true;
      if (sequence.sampling.topLogprobs !== null) frame?.addLogprobs(this.#sampler.lastLogprobs);
      if (finish !== "none") this.#forget(sequence);
      this.statistics.tokens++;
    }
  }

  /** The next token, or null for a sequence whose logits leave nothing to choose: that ends it alone. */
  #sample(sequence: LiveSequence, logits: Float32Array, row: number): number | null {
    try {
      return this.#sampler.sample(sequence.sampling, logits, row);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.#fail(sequence.consumer, [sequence.id], toErrorRecord(error));
      return null;
    }
  }

  #flush(): void {
    this.#lastFlushMs = performance.now();
    this.#isUrgent = false;
    for (const [consumer, frame] of this.#frames) {
      const built = frame.take();
      if (built) consumer.send(built);
    }
  }

  #failAll(error: ErrorRecord): void {
    for (const [consumer, sequences] of this.#live) this.#fail(consumer, [...sequences.keys()], error);
  }

  #fail(consumer: Consumer, ids: readonly number[], error: ErrorRecord): void {
    consumer.send({ rows: new Int32Array(0), logprobs: null, failed: ids.map((id) => ({ id, error })) });
    this.cancel(consumer, ids);
  }

  #forget(sequence: LiveSequence): void {
    this.#live.get(sequence.consumer)?.delete(sequence.id);
  }
}

/** What a timer can hold; a longer wait has no end worth a timer. */
const longestTimerMs = 2 ** 31 - 2;

function queueTimeout(waitedMs: number): ErrorRecord {
  const seconds = Math.round(waitedMs / 100) / 10;
  const message = `no slot became free within ${seconds} s (queue_timeout_secs); try again later`;
  return { code: "queue_timeout", message };
}

/** One turn of the event loop, so that ports, sockets and asks are served between steps. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
