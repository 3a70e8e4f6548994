// Owns the loop of a model place: take messages -> schedule -> one forward pass -> sample -> frames -> one turn of the
// event loop. It owns the model and the scheduler's state; nothing else runs on its thread.
import { performance } from "node:perf_hooks";
import { Batch } from "../../engines/batch.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import type { CompiledGrammar } from "../../engines/grammar/matcher.ts";
import { Sampler } from "../../engines/sampler/sampler.ts";
import type { CachedPrefix } from "../../engines/scheduler/prefix-cache.ts";
import { Scheduler, type SchedulerLimits } from "../../engines/scheduler/scheduler.ts";
import type { StepCost } from "../../engines/scheduler/step-cost.ts";
import type { ChooseDraft } from "../../engines/speculation/heads-drafter.ts";
import type { Speculation } from "../../engines/speculation/speculation.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { EndCounts, ModelStatistics, SequenceJob } from "../messages.ts";
import { Adapters } from "./adapters.ts";
import { Consumers } from "./consumers.ts";
import { type Consumer, LiveSequence, PooledSequence } from "./live-sequence.ts";
import { openSequence } from "./open-sequence.ts";
import { PoolRuns } from "./pool-runs.ts";
import { StepStatistics } from "./step-statistics.ts";
import { TokenTaker } from "./token-taker.ts";

export type { Consumer } from "./live-sequence.ts";

export interface StepLoopOptions {
  readonly limits: SchedulerLimits;
  /**
   * Tokens of short steps leave together, up to so many ms after the frame before: on a machine whose cores are all
   * computing, waking the readers costs more than a step's share of it. 0 sends each step's at once.
   */
  readonly frameIntervalMs: number;
  /** Made with the scheduler's estimates of what steps cost; left out where nothing drafts. */
  readonly createSpeculation?: (cost: StepCost, choose: ChooseDraft) => Speculation | null;
  /** Told of each cached prefix that is about to be dropped. */
  readonly onEvict?: (prefix: CachedPrefix) => void;
}

type Scheduled = LiveSequence | PooledSequence;

export class StepLoop {
  readonly adapters: Adapters;
  readonly #statistics = new StepStatistics();
  readonly #model: LoadedModel;
  readonly #scheduler: Scheduler<Scheduled>;
  readonly #sampler: Sampler;
  readonly #taker: TokenTaker;
  readonly #speculation: Speculation | null;
  readonly #pools: PoolRuns;
  readonly #batch: Batch;
  readonly #consumers: Consumers;
  /** Sequences under a grammar. */
  readonly #matched = new Set<LiveSequence>();
  readonly #drafted: LiveSequence[] = [];
  readonly #maxChunk: number;
  #wake: (() => void) | null = null;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(model: LoadedModel, options: StepLoopOptions) {
    const { limits, frameIntervalMs, createSpeculation, onEvict } = options;
    this.#model = model;
    this.#maxChunk = limits.maxPrefillChunkTokens;
    this.#consumers = new Consumers(model.capacity.maxLogitsRows, frameIntervalMs);
    this.#scheduler = new Scheduler(model, limits, onEvict ?? null);
    this.adapters = new Adapters(model.adapters ?? null, (id) => this.#scheduler.dropAdapter(id));
    this.#sampler = Sampler.create(model.card.vocabSize);
    const foresee: ChooseDraft = (sequence, logits, row) =>
      sequence instanceof LiveSequence
        ? this.#sampler.foresee(sequence.live.sampling, logits, row, sequence.draftCount)
        : -1;
    this.#speculation = createSpeculation?.(this.#scheduler.cost, foresee) ?? null;
    this.#taker = new TokenTaker(this.#scheduler, this.#sampler, this.#speculation);
    this.#pools = new PoolRuns(this.#scheduler, this.adapters, model.capabilities, model.capacity.maxSequences);
    this.#batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  }

  /** Totals, and how many sequences there are now. */
  snapshot(): ModelStatistics {
    return this.#statistics.snapshot(this.#model, this.#scheduler, this.#speculation, this.adapters.count);
  }

  /** Queues all jobs or, when one is refused, none. `grammars` are the compiled ones of the jobs that have one. */
  submit(consumer: Consumer, jobs: readonly SequenceJob[], grammars?: ReadonlyMap<number, CompiledGrammar>): void {
    this.#advance();
    const added: LiveSequence[] = [];
    try {
      for (const job of jobs) added.push(this.#add(consumer, job, grammars?.get(job.id) ?? null));
    } catch (error) {
      for (const sequence of added) this.#forget(sequence);
      throw error;
    }
    this.#wake?.();
  }

  /** The pooled outputs of prompts, in one array. Cancelled like a sequence, by its id. */
  pool(consumer: Consumer, message: Parameters<PoolRuns["start"]>[1]): Promise<Float32Array> {
    this.#advance();
    const result = this.#pools.start(consumer, message);
    this.#wake?.();
    return result;
  }

  /** How many of the first tokens of a prompt a cached prefix has. */
  cachedLength(tokens: Int32Array, adapter: number): number {
    return this.#scheduler.cachedLength(tokens, adapter);
  }

  /** Adds a cached prefix from its exported bytes, if there is room. */
  importPrefix(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    return this.#scheduler.importPrefix(adapter, tokens, bytes);
  }

  /** Drops the cached prefix that was used last. False where there is none. */
  evictLatestPrefix(): boolean {
    return this.#scheduler.evictLatestPrefix();
  }

  /** Whether the model can take a part of what was cached. */
  get truncates(): boolean {
    return this.#model.capabilities.truncate;
  }

  /** `how`: a sequence whose text has met a stop string has ended well. */
  cancel(consumer: Consumer, ids: readonly number[], how: "cancelled" | "stop" = "cancelled"): void {
    for (const id of ids) {
      this.#pools.cancel(consumer, id);
      const sequence = this.#consumers.find(consumer, id);
      if (sequence) this.#end(sequence, how);
    }
    // The slot of a paused sequence may be what others wait for.
    this.#wake?.();
  }

  setPaused(consumer: Consumer, ids: readonly number[], paused: boolean): void {
    this.#advance();
    for (const id of ids) {
      const sequence = this.#consumers.find(consumer, id);
      if (!sequence) continue;
      this.#scheduler.setPaused(sequence, paused);
      if (paused) sequence.clock?.pause();
    }
    this.#wake?.();
  }

  /** Cancels everything of a consumer that is gone. */
  drop(consumer: Consumer): void {
    this.#pools.drop(consumer);
    for (const sequence of this.#consumers.sequencesOf(consumer)) this.#end(sequence, "cancelled");
    this.#consumers.drop(consumer);
    this.#wake?.();
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
    this.#pools.failAll(stopped);
    for (const consumer of this.#consumers.all()) this.drop(consumer);
    this.#wake?.();
  }

  /** Lets go of what was made for the loop alone; the model is not its own. */
  dispose(): void {
    this.#speculation?.dispose();
  }

  /** One step, synchronous. Returns false when there was nothing to run. */
  step(): boolean {
    let started = 0;
    let engineMs = 0;
    try {
      this.#prepare();
      started = performance.now();
      this.#advance(started);
      if (!this.#scheduler.schedule(this.#batch)) return false;
      // Nothing waits for a step with a prompt in it: it is a long one.
      if (this.#scheduler.promptTokensInStep > 0) this.#consumers.flush();
      const before = performance.now();
      const output = this.#model.step(this.#batch);
      engineMs = performance.now() - before;
      this.#takeRows(output, started);
    } catch (error) {
      this.#failAll(toErrorRecord(error));
      throw error;
    }
    this.#scheduler.endStep(performance.now() - started);
    this.#consumers.flushIfDue();
    this.#statistics.steps++;
    this.#statistics.engineMs += engineMs;
    this.#statistics.totalMs += performance.now() - started;
    return true;
  }

  /** Waits for a message, or for the time at which there is something to do without one. */
  async #idle(): Promise<void> {
    this.#consumers.flush();
    this.#scheduler.checkIntegrity();
    const waitMs = this.#hasHeld() ? heldPollMs : this.#scheduler.nextChangeMs - performance.now();
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
    for (const sequence of this.#scheduler.advance(nowMs))
      this.#fail(sequence, queueTimeout(nowMs - sequence.queuedMs));
  }

  /** Leaves out those whose grammar is not ready, and has drafts made for the others where no prompt needs the step. */
  #prepare(): void {
    for (const sequence of this.#matched) {
      // Until the prompt's last chunk nobody asks what may come next.
      const isEarly = sequence.pending > this.#maxChunk;
      sequence.isHeld = !isEarly && sequence.live.matcher?.isReady === false;
    }
    if (this.#speculation === null) return;
    this.#scheduler.chooseTurn();
    const drafted = this.#drafted;
    drafted.length = 0;
    if (this.#scheduler.hasPrompts) {
      this.#speculation.prepare(drafted);
      return;
    }
    let others = 0;
    for (const sequence of this.#scheduler.decodes()) {
      const canDraft = sequence instanceof LiveSequence && sequence.live.matcher === null && sequence.pending === 1;
      if (canDraft) drafted.push(sequence);
      else others++;
    }
    this.#speculation.prepare(drafted, others);
  }

  #hasHeld(): boolean {
    for (const { isHeld } of this.#matched) if (isHeld) return true;
    return false;
  }

  #add(consumer: Consumer, job: SequenceJob, grammar: CompiledGrammar | null): LiveSequence {
    this.#consumers.checkFree(consumer, job.id);
    const matcher = grammar?.open() ?? null;
    let sequence: LiveSequence | null = null;
    try {
      const { sequenceTokens } = this.#model.capacity;
      sequence = openSequence(job, consumer, this.#sampler, matcher, sequenceTokens);
      this.adapters.use(job.adapter, sequence, job);
      const { series, receivedAt } = job;
      if (series !== null) {
        sequence.clock = this.#statistics.latencies.open(series, Date.now() - receivedAt, performance.now());
      }
      this.#scheduler.add(sequence);
      this.#consumers.add(sequence);
      if (matcher !== null) this.#matched.add(sequence);
      return sequence;
    } catch (error) {
      if (sequence !== null) this.adapters.release(job.adapter, sequence);
      matcher?.close();
      throw error;
    }
  }

  #takeRows(output: ReturnType<LoadedModel["step"]>, stepStarted: number): void {
    const { rows } = this.#scheduler;
    const { pooledLength } = this.#model.capabilities;
    // Finished sequences leave the scheduler's lists, not `rows`.
    for (let row = 0; row < rows.length; row++) {
      const sequence = rows[row] as Scheduled;
      const position = this.#batch.position[row] as number;
      const ofPrompt = Math.min(position + (this.#batch.length[row] as number), sequence.promptLength) - position;
      this.#statistics.promptTokens += Math.max(ofPrompt, 0);
      if (sequence instanceof PooledSequence) {
        const at = (output.pooledRow[row] as number) * pooledLength;
        sequence.sink.add(output.pooled.subarray(at, at + pooledLength), position);
        if (sequence.pending > 0) continue;
        this.#scheduler.finishPooled(sequence);
        sequence.sink.done();
        continue;
      }
      if (sequence.startedMs === 0) sequence.startedMs = stepStarted;
      if ((output.logitsRow[row] as number) >= 0) this.#takeTokens(sequence, row, output);
      sequence.draftCount = 0;
    }
  }

  /** What the logits of a row make of its sequence; a failure ends that one alone. */
  #takeTokens(sequence: LiveSequence, row: number, output: ReturnType<LoadedModel["step"]>): void {
    const frame = this.#consumers.frameOf(sequence);
    if (!frame) return;
    try {
      const before = sequence.total;
      const finish = this.#taker.take(sequence, row, this.#batch, output, frame);
      const taken = sequence.total - before;
      this.#statistics.tokens += taken;
      if (taken > 0) sequence.clock?.took(taken, performance.now());
      const isFirst = before === sequence.promptLength && taken > 0;
      if (isFirst || finish !== "none" || frame.isFull) this.#consumers.isUrgent = true;
      if (finish === "none") return;
      this.#statistics.ended[finish]++;
      this.#forget(sequence);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.#fail(sequence, toErrorRecord(error));
    }
  }

  #failAll(error: ErrorRecord): void {
    this.#pools.failAll(error);
    for (const consumer of this.#consumers.all()) {
      for (const sequence of this.#consumers.sequencesOf(consumer)) this.#fail(sequence, error);
    }
  }

  #fail(sequence: Scheduled, error: ErrorRecord): void {
    if (sequence instanceof PooledSequence) {
      sequence.sink.fail(error);
      return;
    }
    this.#end(sequence, "error");
    this.#consumers.fail(sequence, error);
  }

  #end(sequence: LiveSequence, how: keyof EndCounts): void {
    this.#statistics.ended[how]++;
    if (how === "error") this.#scheduler.discard(sequence);
    this.#forget(sequence);
  }

  /** Takes a sequence out of all books, whatever has become of it. */
  #forget(sequence: LiveSequence): void {
    this.#scheduler.cancel(sequence);
    this.#consumers.remove(sequence);
    this.#speculation?.forget(sequence);
    this.adapters.release(sequence.adapter, sequence);
    sequence.live.matcher?.close();
    this.#matched.delete(sequence);
  }
}

/** What a timer can hold; a longer wait has no end worth a timer. */
const longestTimerMs = 2 ** 31 - 2;
/** How soon to look again whether a grammar's thread is done with another one. */
const heldPollMs = 2;

const stopped: ErrorRecord = {
  code: "model_failed",
  message: "the model is being stopped; the request can be retried",
};

function queueTimeout(waitedMs: number): ErrorRecord {
  const seconds = Math.round(waitedMs / 100) / 10;
  const message = `no slot became free within ${seconds} s (queue_timeout_secs); try again later`;
  return { code: "queue_timeout", message };
}

/** One turn of the event loop, so that ports, sockets and asks are served between steps. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
