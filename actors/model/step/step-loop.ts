// Step loop: each iteration handles messages, schedules a step, runs one forward pass, samples, and sends frames. Only this loop
// uses the model and the scheduler, and nothing else runs on its thread.
import { performance } from "node:perf_hooks";
import { Batch } from "../../../engines/batch.ts";
import type { CompiledGrammar } from "../../../engines/decoding/grammar/matcher.ts";
import type { CachedPrefix } from "../../../engines/decoding/kv/prefix-cache.ts";
import { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { SchedulerLimits } from "../../../engines/decoding/scheduler/limits.ts";
import {
  displacedWhilePreempted,
  displacedWhileWaiting,
} from "../../../engines/decoding/scheduler/queue/queue-full.ts";
import { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from "../../../runtime/errors.ts";
import type { EndCounts, ModelStatistics, SequenceJob } from "../../messages.ts";
import { Adapters } from "../adapters.ts";
import { type GenerationSequence, PooledSequence, type Subscriber } from "../sequence/generation-sequence.ts";
import { openSequence } from "../sequence/open-sequence.ts";
import { StepStatistics } from "../step-statistics.ts";
import { Subscribers } from "../subscribers.ts";
import { OutputProcessor } from "./output-processor.ts";
import { PooledJobs } from "./pooled-jobs.ts";
import { type CreateSpeculation, PreStep } from "./pre-step.ts";
import { WakeSignal } from "./wake-signal.ts";

export type { Subscriber } from "../sequence/generation-sequence.ts";

export interface StepLoopOptions {
  readonly limits: SchedulerLimits;
  /**
   * Minimum time in ms between two frames, except urgent ones. The tokens of several short steps are sent together, because
   * waking the readers is expensive while all cores are busy. 0 = send tokens after each step.
   */
  readonly frameIntervalMs: number;
  /** Creates the speculation; absent = no speculative decoding. */
  readonly createSpeculation?: CreateSpeculation;
  /** Called with each cached prefix that is about to be dropped. */
  readonly onEvict?: (prefix: CachedPrefix) => void;
}

type Scheduled = GenerationSequence | PooledSequence;

export class StepLoop {
  readonly adapters: Adapters;
  /** Whether the model can reuse part of a cached prefix. If not, it can only reuse the whole prefix. */
  readonly truncates: boolean;
  readonly #statistics = new StepStatistics();
  readonly #model: LoadedModel;
  readonly #maxQueue: number;
  readonly #scheduler: Scheduler<Scheduled>;
  readonly #sampler: Sampler;
  readonly #output: OutputProcessor;
  readonly #preStep: PreStep;
  readonly #pools: PooledJobs;
  readonly #batch: Batch;
  readonly #subscribers: Subscribers<GenerationSequence>;
  readonly #wakeSignal = new WakeSignal();
  /** Whether the loop was stopped or the engine has failed. */
  #stopped = false;

  constructor(model: LoadedModel, options: StepLoopOptions) {
    const { limits, frameIntervalMs, createSpeculation, onEvict } = options;
    const { capacity, capabilities } = model;
    this.#model = model;
    this.truncates = capabilities.truncate;
    this.#maxQueue = limits.maxQueue;
    this.#subscribers = new Subscribers(capacity.maxLogitsRows, frameIntervalMs);
    this.#scheduler = new Scheduler(model, limits, onEvict ?? null);
    this.adapters = new Adapters(model.adapters ?? null, {
      onLeave: (id) => this.#scheduler.retireAdapter(id),
      onFree: (id) => this.#scheduler.dropAdapter(id),
    });
    this.#sampler = Sampler.create(model.card.vocabSize, model.tokens.suppressed);
    this.#preStep = new PreStep(this.#scheduler, this.#sampler, limits.maxPrefillChunkTokens, createSpeculation);
    this.#output = new OutputProcessor({
      scheduler: this.#scheduler,
      sampler: this.#sampler,
      speculation: this.#preStep.speculation,
      subscribers: this.#subscribers,
      statistics: this.#statistics,
      capabilities,
      onEnd: (sequence) => this.#forget(sequence),
      onFail: (sequence, error) => this.#fail(sequence, error),
    });
    this.#pools = new PooledJobs(this.#scheduler, this.adapters, capabilities, {
      window: capacity.maxSequences,
      onDisplaced: (sequences) => this.#failDisplaced(sequences),
    });
    this.#batch = new Batch(capacity.maxSequences, capacity.maxBatchTokens);
  }

  /** Returns the totals and the current numbers of sequences. */
  snapshot(): ModelStatistics {
    const { speculation } = this.#preStep;
    return this.#statistics.snapshot(this.#model, this.#scheduler, speculation, this.adapters.count);
  }

  /**
   * Queues all jobs, or none if one is rejected. `grammars`: compiled grammars, by job id. Throws model_failed if the loop has
   * ended, and the scheduler's error if it rejects a sequence.
   */
  submit(subscriber: Subscriber, jobs: readonly SequenceJob[], grammars?: ReadonlyMap<number, CompiledGrammar>): void {
    this.#checkRunning();
    this.#advance();
    const opened: GenerationSequence[] = [];
    try {
      for (const job of jobs) opened.push(this.#open(subscriber, job));
      // Matchers of evicted sequences are closed before new ones are opened, because the number of matchers is limited.
      this.#failDisplaced(this.#scheduler.add(opened));
      for (const sequence of opened) this.#openMatcher(sequence, grammars?.get(sequence.live.id) ?? null);
    } catch (error) {
      for (const sequence of opened) this.#forget(sequence);
      throw error;
    }
    this.#wakeSignal.wake();
  }

  /** Returns the pooled outputs of all prompts, concatenated. cancel() with the message's id cancels the job. */
  async pool(subscriber: Subscriber, message: Parameters<PooledJobs["start"]>[1]): Promise<Float32Array> {
    this.#checkRunning();
    this.#advance();
    const result = this.#pools.start(subscriber, message);
    this.#wakeSignal.wake();
    return result;
  }

  /** Returns the length in tokens of a prompt's longest cached prefix. */
  cachedLength(tokens: Int32Array, adapter: number): number {
    return this.#scheduler.prefixes.findCopy({ tokens, adapter, total: tokens.length })?.length ?? 0;
  }

  /**
   * Adds a cached prefix from its exported bytes. Returns false if there is no room, or if the loop has ended, because the engine
   * may then be disposed.
   */
  importPrefix(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    return !this.#stopped && this.#scheduler.prefixes.import(adapter, tokens, bytes);
  }

  /** Drops the most recently used cached prefix. Returns false if there is none. */
  evictLatestPrefix(): boolean {
    return this.#scheduler.prefixes.evictLatest();
  }

  /** Ends sequences. `how`: "stop" if the text contains a stop string. */
  cancel(subscriber: Subscriber, ids: readonly number[], how: "cancelled" | "stop" = "cancelled"): void {
    for (const id of ids) {
      this.#pools.cancel(subscriber, id);
      const sequence = this.#subscribers.find(subscriber, id);
      if (sequence) this.#end(sequence, how);
    }
    // A paused sequence may hold a slot for which other sequences wait, so its cancellation wakes the loop.
    this.#wakeSignal.wake();
  }

  setPaused(subscriber: Subscriber, ids: readonly number[], paused: boolean): void {
    this.#advance();
    for (const id of ids) {
      const sequence = this.#subscribers.find(subscriber, id);
      if (!sequence) continue;
      this.#scheduler.setPaused(sequence, paused);
      if (paused) sequence.clock?.pause();
    }
    this.#wakeSignal.wake();
  }

  /** Cancels all sequences of a subscriber that has ended. */
  drop(subscriber: Subscriber): void {
    this.#pools.drop(subscriber);
    for (const sequence of this.#subscribers.sequencesOf(subscriber)) this.#end(sequence, "cancelled");
    this.#subscribers.drop(subscriber);
    this.#wakeSignal.wake();
  }

  /** Runs steps until stop() is called. Rejects if the engine fails, after all sequences have been failed. */
  async run(): Promise<void> {
    while (!this.#stopped) {
      if (this.step()) await nextTurn();
      else await this.#idle();
    }
  }

  /** Cancels all sequences and ends run() after the current step. The model must not be disposed before run() has ended. */
  stop(): void {
    this.#stopped = true;
    this.#pools.failAll(stopped);
    for (const subscriber of this.#subscribers.all()) this.drop(subscriber);
    this.#wakeSignal.wake();
  }

  /** Disposes the objects that the loop has created. Call just before the model is disposed. */
  dispose(): void {
    this.adapters.close();
    this.#preStep.dispose();
  }

  /** Runs one step, synchronously. Returns false if there is nothing to do. */
  step(): boolean {
    const begun = performance.now();
    let started = 0;
    let engineMs = 0;
    try {
      this.#preStep.prepare();
      // The scheduler learns step times without the time of drafts, which speculation measures itself.
      started = performance.now();
      this.#advance(started);
      if (!this.#scheduler.schedule(this.#batch)) return false;
      // A step with prompt tokens takes long, so the tokens of earlier steps are sent first.
      if (this.#scheduler.promptTokensInStep > 0) this.#subscribers.flush();
      const before = performance.now();
      const output = this.#model.step(this.#batch);
      engineMs = performance.now() - before;
      this.#output.take(this.#batch, output, started, engineMs);
    } catch (error) {
      this.#stopped = true;
      this.#failAll(toErrorRecord(error));
      throw error;
    }
    this.#scheduler.endStep(performance.now() - started);
    this.#subscribers.flushIfDue();
    this.#statistics.steps++;
    this.#statistics.engineMs += engineMs;
    this.#statistics.totalMs += performance.now() - begun;
    return true;
  }

  /** Waits for a message, or until the scheduler next has something to do. */
  async #idle(): Promise<void> {
    this.#subscribers.flush();
    this.#scheduler.checkIntegrity();
    await this.#wakeSignal.wait(
      this.#preStep.awaitsGrammar ? grammarPollMs : this.#scheduler.nextChangeMs - performance.now(),
    );
  }

  #checkRunning(): void {
    if (this.#stopped) throw fromErrorRecord(stopped);
  }

  /** Updates the scheduler's clock, fails the sequences whose queue timeout has expired, and resumes pooled jobs that wait. */
  #advance(nowMs = performance.now()): void {
    for (const sequence of this.#scheduler.advance(nowMs))
      this.#fail(sequence, queueTimeout(nowMs - sequence.queuedMs));
    this.#pools.resume();
  }

  #open(subscriber: Subscriber, job: SequenceJob): GenerationSequence {
    this.#subscribers.checkFree(subscriber, job.id);
    const sequence = openSequence(job, subscriber, this.#sampler, this.#model);
    const { series, receivedAt } = job;
    if (series !== null) {
      sequence.clock = this.#statistics.latencies.open(series, Date.now() - receivedAt, performance.now());
    }
    this.adapters.use(job.adapter, sequence, job);
    this.#subscribers.add(sequence);
    return sequence;
  }

  #openMatcher(sequence: GenerationSequence, grammar: CompiledGrammar | null): void {
    sequence.matcher = grammar?.open() ?? null;
    this.#preStep.add(sequence);
  }

  /** Fails sequences that the scheduler evicted from the full queue in favour of another client's sequences. */
  #failDisplaced(displaced: readonly Scheduled[]): void {
    for (const sequence of displaced) {
      const reason = sequence.wasPreempted ? displacedWhilePreempted : displacedWhileWaiting;
      this.#fail(sequence, toErrorRecord(reason(this.#maxQueue)));
    }
  }

  #failAll(error: ErrorRecord): void {
    this.#pools.failAll(error);
    for (const subscriber of this.#subscribers.all()) {
      for (const sequence of this.#subscribers.sequencesOf(subscriber)) this.#fail(sequence, error);
    }
  }

  #fail(sequence: Scheduled, error: ErrorRecord): void {
    if (sequence instanceof PooledSequence) {
      sequence.sink.fail(error);
      return;
    }
    this.#end(sequence, "error");
    this.#subscribers.fail(sequence, error);
  }

  #end(sequence: GenerationSequence, how: keyof EndCounts): void {
    this.#statistics.ended[how]++;
    if (how === "error") this.#scheduler.cancel(sequence, true);
    this.#forget(sequence);
  }

  /** Removes a sequence, in any state, from the scheduler, the subscribers, the pre-step and the users of its adapter. */
  #forget(sequence: GenerationSequence): void {
    this.#scheduler.cancel(sequence);
    this.#subscribers.remove(sequence);
    this.#preStep.forget(sequence);
    this.adapters.release(sequence.adapter, sequence);
    sequence.matcher?.close();
  }
}

/** Interval in ms at which the loop checks whether a grammar is ready while nothing else can run. */
const grammarPollMs = 2;

const stopped: ErrorRecord = {
  code: "model_failed",
  message: "the model is being stopped; the request can be retried",
};

function queueTimeout(waitedMs: number): ErrorRecord {
  const seconds = Math.round(waitedMs / 100) / 10;
  const message = `no slot became free within ${seconds} s (queue_timeout_secs); try again later`;
  return { code: "queue_timeout", message };
}

/** Yields to the event loop once, so that messages are handled between steps. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
