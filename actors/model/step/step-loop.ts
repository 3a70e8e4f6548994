// Step loop: each iteration handles messages, schedules a step, runs one forward pass, samples, and sends frames. Only this loop
// uses the model and the scheduler, and nothing else runs on its thread.
import { performance } from "node:perf_hooks";
import { Batch } from "../../../engines/batch.ts";
import type { CompiledGrammar } from "../../../engines/decoding/grammar/matcher.ts";
import type { CachedPrefix, PrefixCache } from "../../../engines/decoding/kv/prefix-cache.ts";
import { Sampler } from "../../../engines/decoding/sampler/sampler.ts";
import type { SchedulerLimits } from "../../../engines/decoding/scheduler/limits.ts";
import {
  displacedWhilePreempted,
  displacedWhileWaiting,
} from "../../../engines/decoding/scheduler/queue/queue-full.ts";
import { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { StepTimeModel } from "../../../engines/decoding/scheduler/step-time-model.ts";
import type { ChooseDraft } from "../../../engines/decoding/speculation/mtp-drafter.ts";
import type { Speculation } from "../../../engines/decoding/speculation/speculation.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from "../../../runtime/errors.ts";
import type { EndCounts, ModelStatistics, SequenceJob } from "../../messages.ts";
import { Adapters } from "../adapters.ts";
import { GenerationSequence, type Subscriber } from "../sequence/generation-sequence.ts";
import { openSequence } from "../sequence/open-sequence.ts";
import { StepStatistics } from "../step-statistics.ts";
import { Subscribers } from "../subscribers.ts";
import { OutputProcessor } from "./output-processor.ts";
import { PooledJobs, PooledSequence, type ScheduledSequence } from "./pooled-jobs.ts";
import { WakeSignal } from "./wake-signal.ts";

export type { Subscriber } from "../sequence/generation-sequence.ts";

export interface StepLoopOptions {
  readonly limits: SchedulerLimits;
  /**
   * Minimum time in ms between two frames, except urgent ones. The tokens of several short steps are sent together, because
   * waking the readers is expensive while all cores are busy. 0 = send tokens after each step.
   */
  readonly frameIntervalMs: number;
  /** Creates the speculation; null = no drafts. `cost`: the scheduler's estimates of step times. Absent = no speculative decoding. */
  readonly createSpeculation?: (cost: StepTimeModel, choose: ChooseDraft) => Speculation | null;
  /** Called with each cached prefix that is about to be dropped. */
  readonly onEvict?: (prefix: CachedPrefix) => void;
}

export class StepLoop {
  readonly adapters: Adapters;
  /** Cached prefixes. Add one with importPrefix(), which checks that the engine can still be used. */
  readonly prefixes: PrefixCache<ScheduledSequence>;
  readonly #statistics = new StepStatistics();
  readonly #model: LoadedModel;
  readonly #limits: SchedulerLimits;
  readonly #scheduler: Scheduler<ScheduledSequence>;
  readonly #sampler: Sampler;
  readonly #output: OutputProcessor;
  /** Drafts tokens for speculative decoding; null = no drafts. */
  readonly #speculation: Speculation | null;
  /** Sequences that have a grammar. */
  readonly #matched = new Set<GenerationSequence>();
  /** Sequences that get drafts in the current step. */
  readonly #drafted: GenerationSequence[] = [];
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
    this.#limits = limits;
    this.#subscribers = new Subscribers(capacity.maxLogitsRows, frameIntervalMs);
    this.#scheduler = new Scheduler(model, limits, onEvict ?? null);
    this.prefixes = this.#scheduler.prefixes;
    this.adapters = new Adapters(model.adapters ?? null, {
      onLeave: (id) => this.#scheduler.retireAdapter(id),
      onFree: (id) => this.#scheduler.dropAdapter(id),
    });
    this.#sampler = Sampler.create(model.card.vocabSize, model.tokens.suppressed);
    const choose: ChooseDraft = (sequence, logits, row) =>
      sequence instanceof GenerationSequence
        ? this.#sampler.foresee(sequence.live.sampling, logits, row, sequence.draftCount)
        : -1;
    this.#speculation = createSpeculation?.(this.#scheduler.cost, choose) ?? null;
    this.#pools = new PooledJobs(this.#scheduler, this.adapters, model, (sequences) => this.#failDisplaced(sequences));
    this.#output = new OutputProcessor({
      scheduler: this.#scheduler,
      sampler: this.#sampler,
      pools: this.#pools,
      speculation: this.#speculation,
      subscribers: this.#subscribers,
      statistics: this.#statistics,
      capabilities,
      onEnd: (sequence) => this.#forget(sequence),
      onFail: (sequence, error) => this.#fail(sequence, error),
    });
    this.#batch = new Batch(capacity.maxSequences, capacity.maxBatchTokens);
  }

  /** Returns the totals and the current numbers of sequences. */
  snapshot(): ModelStatistics {
    return this.#statistics.snapshot(this.#model, this.#scheduler.statistics, this.#speculation, this.adapters.count);
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

  /**
   * Adds a cached prefix from its exported bytes. Returns false if there is no room, or if the loop has ended, because the engine
   * may then be disposed.
   */
  importPrefix(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    return !this.#stopped && this.prefixes.import(adapter, tokens, bytes);
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
    this.#speculation?.dispose();
  }

  /** Runs one step, synchronously. Returns false if there is nothing to do. */
  step(): boolean {
    const begun = performance.now();
    let started = 0;
    let engineMs = 0;
    try {
      this.#blockUnready();
      if (this.#speculation !== null) this.#draft(this.#speculation);
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
    if (this.#awaitsGrammar) {
      await this.#wakeSignal.wait(grammarPollMs);
      return;
    }
    // Not at each poll for a grammar, because the check takes time proportional to the number of sequences.
    this.#scheduler.checkIntegrity();
    await this.#wakeSignal.wait(this.#scheduler.nextChangeMs - performance.now());
  }

  /** Whether any sequence is waiting for the token mask of its grammar. */
  get #awaitsGrammar(): boolean {
    for (const { blockedBy } of this.#matched) if (blockedBy.has("grammar")) return true;
    return false;
  }

  /** Blocks the sequences whose next token masks are not ready, and unblocks the others. */
  #blockUnready(): void {
    for (const sequence of this.#matched) {
      // A token mask is needed only after the last chunk of the prompt.
      const isEarly = sequence.pending > this.#limits.maxPrefillChunkTokens;
      this.#scheduler.setAwaitsGrammar(sequence, !isEarly && sequence.matcher?.isReady === false);
    }
  }

  /** Drafts tokens for the sequences that decode in the next step. Drafts nothing if prompts can fill that step. */
  #draft(speculation: Speculation): void {
    const drafted = this.#drafted;
    drafted.length = 0;
    let others = 0;
    for (const sequence of this.#scheduler.nextDecodes()) {
      const canDraft = sequence instanceof GenerationSequence && sequence.matcher === null && sequence.pending === 1;
      if (canDraft) drafted.push(sequence);
      else others++;
    }
    speculation.prepare(drafted, others);
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
    if (sequence.matcher !== null) this.#matched.add(sequence);
  }

  /** Fails sequences that the scheduler evicted from the full queue in favour of another client's sequences. */
  #failDisplaced(displaced: readonly ScheduledSequence[]): void {
    for (const sequence of displaced) {
      const reason = sequence.wasPreempted ? displacedWhilePreempted : displacedWhileWaiting;
      this.#fail(sequence, toErrorRecord(reason(this.#limits.maxQueue)));
    }
  }

  #failAll(error: ErrorRecord): void {
    this.#pools.failAll(error);
    for (const subscriber of this.#subscribers.all()) {
      for (const sequence of this.#subscribers.sequencesOf(subscriber)) this.#fail(sequence, error);
    }
  }

  #fail(sequence: ScheduledSequence, error: ErrorRecord): void {
    if (sequence instanceof PooledSequence) {
      this.#pools.fail(sequence, error);
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

  /** Removes a sequence, in any state, from the scheduler, the subscribers, the speculation and the users of its adapter. */
  #forget(sequence: GenerationSequence): void {
    this.#scheduler.cancel(sequence);
    this.#subscribers.remove(sequence);
    this.#speculation?.forget(sequence);
    this.#matched.delete(sequence);
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
