// Pooled jobs: requests for pooled outputs (vectors). Adds their prompts to the scheduler as sequences, a few at a time, and
// collects the vectors.

import type { Batch, StepOutput } from "../../../engines/batch.ts";
import type { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import { Sequence, type SequenceRequest } from "../../../engines/decoding/scheduler/sequence.ts";
import type { Capabilities, LoadedModel, Pooling } from "../../../engines/engine.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { PoolJob } from "../../messages.ts";
import type { Adapters } from "../adapters.ts";
import type { GenerationSequence, Subscriber } from "../sequence/generation-sequence.ts";

/** The sequences of a model: prompts to continue, and prompts whose output is a vector. */
export type ScheduledSequence = GenerationSequence | PooledSequence;

interface PoolRun {
  readonly subscriber: Subscriber;
  readonly id: number;
  readonly job: PoolJob;
  readonly values: Float32Array;
  /** Index in `values` at which the outputs of each prompt begin; the last element is the length of `values`. */
  readonly starts: readonly number[];
  readonly live: Set<PooledSequence>;
  readonly request: SequenceRequest;
  next: number;
  readonly resolve: (values: Float32Array) => void;
  readonly reject: (error: Error) => void;
}

/** A prompt whose output is a vector, or a vector per token. */
export class PooledSequence extends Sequence {
  readonly run: PoolRun;
  /** Outputs of this prompt: a part of the run's values. */
  readonly values: Float32Array;

  constructor(run: PoolRun, index: number) {
    const { client, prompts, adapter, priority, hasBegun } = run.job;
    super({
      client,
      hasQueueLimit: index === 0 && !hasBegun,
      prompt: prompts[index] as Int32Array,
      maxNewTokens: 0,
      ignoreEos: false,
      adapter,
      priority,
      isPooled: true,
      wantsPromptLogits: false,
    });
    this.run = run;
    this.values = run.values.subarray(run.starts[index], run.starts[index + 1]);
  }
}

export class PooledJobs {
  readonly #scheduler: Scheduler<ScheduledSequence>;
  readonly #adapters: Adapters;
  readonly #capabilities: Capabilities;
  /** Maximum number of sequences of one request that are in the scheduler at the same time. */
  readonly #window: number;
  readonly #onDisplaced: (sequences: readonly ScheduledSequence[]) => void;
  readonly #runs = new Set<PoolRun>();

  /** `onDisplaced`: called with the sequences that the scheduler evicted from the full queue to make room for a pooled sequence. */
  constructor(
    scheduler: Scheduler<ScheduledSequence>,
    adapters: Adapters,
    { capabilities, capacity }: LoadedModel,
    onDisplaced: (sequences: readonly ScheduledSequence[]) => void,
  ) {
    this.#scheduler = scheduler;
    this.#adapters = adapters;
    this.#capabilities = capabilities;
    this.#window = capacity.maxSequences;
    this.#onDisplaced = onDisplaced;
  }

  /** Runs a job. Resolves to the vectors, concatenated. Rejects with the scheduler's error, or when the job is cancelled. */
  start(subscriber: Subscriber, { id, job }: { readonly id: number; readonly job: PoolJob }): Promise<Float32Array> {
    return new Promise((resolve, reject) => {
      const starts = this.#starts(job.prompts);
      const values = new Float32Array(starts.at(-1) as number);
      const request = { hasBegun: job.hasBegun };
      const run = {
        subscriber,
        id,
        job,
        values,
        starts,
        live: new Set<PooledSequence>(),
        request,
        next: 0,
        resolve,
        reject,
      };
      this.#adapters.use(job.adapter, run);
      this.#runs.add(run);
      this.#advance(run);
    });
  }

  #starts(prompts: readonly Int32Array[]): readonly number[] {
    const { pooling, pooledLength } = this.#capabilities;
    const starts = [0];
    for (const { length } of prompts) {
      const outputs = pooling === "tokens" ? length : 1;
      starts.push((starts.at(-1) as number) + outputs * pooledLength);
    }
    return starts;
  }

  cancel(subscriber: Subscriber, id: number): void {
    for (const run of this.#runs) if (run.subscriber === subscriber && run.id === id) this.#finish(run, cancelled());
  }

  drop(subscriber: Subscriber): void {
    for (const run of this.#runs) if (run.subscriber === subscriber) this.#finish(run, cancelled());
  }

  failAll(error: ErrorRecord): void {
    for (const run of this.#runs) this.#finish(run, fromErrorRecord(error));
  }

  /** Ends the job of a sequence that the scheduler has evicted. Does nothing if the job has ended with another of its sequences. */
  fail(sequence: PooledSequence, error: ErrorRecord): void {
    if (sequence.run.live.has(sequence)) this.#finish(sequence.run, fromErrorRecord(error));
  }

  /** Adds the pooled output of batch row `row`, which is a chunk of the sequence's prompt. Ends the sequence after its last chunk. */
  take(sequence: PooledSequence, row: number, batch: Batch, { pooled, pooledRow }: StepOutput): void {
    const { pooling, pooledLength } = this.#capabilities;
    const { run, values } = sequence;
    const at = (pooledRow[row] as number) * pooledLength;
    const count = pooling === "tokens" ? (batch.length[row] as number) : 1;
    addPooled(values, pooled.subarray(at, at + count * pooledLength), batch.position[row] as number, pooling);
    if (sequence.pending > 0) return;
    const { promptLength } = sequence;
    if (pooling === "mean") for (let i = 0; i < values.length; i++) values[i] = (values[i] as number) / promptLength;
    this.#scheduler.cancel(sequence);
    run.live.delete(sequence);
    this.#advance(run);
  }

  /** Queues prompts of the jobs that wait for room in the queue, if it has room. */
  resume(): void {
    for (const run of this.#runs) if (run.live.size === 0 && this.#scheduler.hasQueueRoom) this.#advance(run);
  }

  /** Queues further prompts of a job until the maximum number of its sequences is in the scheduler. */
  #advance(run: PoolRun): void {
    try {
      while (run.live.size < this.#window && run.next < run.job.prompts.length) {
        const sequence = new PooledSequence(run, run.next);
        if (!this.#tryAdd(sequence)) return;
        run.next++;
        run.live.add(sequence);
      }
    } catch (error) {
      this.#finish(run, error as Error);
      return;
    }
    if (run.live.size === 0) this.#finish(run, null);
  }

  /**
   * Queues a sequence. Returns false if the queue is full but the request must not be refused: because other sequences of the job
   * are in the scheduler, so the queue will have room when one of these finishes, or because the request has begun.
   */
  #tryAdd(sequence: PooledSequence): boolean {
    const { live, request } = sequence.run;
    try {
      this.#onDisplaced(this.#scheduler.add(sequence, request));
      return true;
    } catch (error) {
      const isFull = error instanceof ServerError && error.code === "queue_full";
      if (isFull && (live.size > 0 || request.hasBegun)) return false;
      throw error;
    }
  }

  #finish(run: PoolRun, error: Error | null): void {
    this.#runs.delete(run);
    for (const sequence of run.live) this.#scheduler.cancel(sequence);
    run.live.clear();
    this.#adapters.release(run.job.adapter, run);
    if (error === null) run.resolve(run.values);
    else run.reject(error);
  }
}

/**
 * Adds the pooled output of a chunk of a prompt to the sum (mean pooling), or replaces the previous output with it (other
 * poolings). If a prompt is computed again after a preemption, its sum restarts from zero.
 */
function addPooled(sum: Float32Array, values: Float32Array, position: number, pooling: Pooling | null): void {
  // Sequences with a vector per token are computed in one piece, so their position is 0.
  if (position === 0 || pooling === "last" || pooling === "rank") sum.set(values);
  else if (pooling === "mean") for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + (values[i] as number);
}

function cancelled(): ServerError {
  return new ServerError("peer_gone", "the request was cancelled");
}
