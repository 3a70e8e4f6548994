// Pooled jobs: requests for pooled outputs (vectors). Adds their prompts to the scheduler as sequences, a few at a time, and
// collects the vectors.

import type { Scheduler } from "../../../engines/decoding/scheduler/scheduler.ts";
import type { SequenceRequest } from "../../../engines/decoding/scheduler/sequence.ts";
import type { Capabilities, Pooling } from "../../../engines/engine.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import type { PoolJob } from "../../messages.ts";
import type { Adapters } from "../adapters.ts";
import {
  type GenerationSequence,
  PooledSequence,
  type PoolSink,
  type Subscriber,
} from "../sequence/generation-sequence.ts";

interface PoolRun {
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

export interface PoolOptions {
  /** Maximum number of sequences of one request that are in the scheduler at the same time. */
  readonly window: number;
  /** Called with the sequences that the scheduler evicted from the full queue to make room for a pooled sequence. */
  readonly onDisplaced: (sequences: readonly (GenerationSequence | PooledSequence)[]) => void;
}

export class PooledJobs {
  readonly #scheduler: Scheduler<GenerationSequence | PooledSequence>;
  readonly #adapters: Adapters;
  readonly #pooling: Pooling | null;
  readonly #length: number;
  readonly #options: PoolOptions;
  readonly #runs = new Map<Subscriber, Map<number, PoolRun>>();

  constructor(
    scheduler: Scheduler<GenerationSequence | PooledSequence>,
    adapters: Adapters,
    { pooling, pooledLength }: Capabilities,
    options: PoolOptions,
  ) {
    this.#scheduler = scheduler;
    this.#adapters = adapters;
    this.#pooling = pooling;
    this.#length = pooledLength;
    this.#options = options;
  }

  /** Runs a job. Resolves to the vectors, concatenated. Rejects with the scheduler's error, or when the job is cancelled. */
  start(subscriber: Subscriber, { id, job }: { readonly id: number; readonly job: PoolJob }): Promise<Float32Array> {
    return new Promise((resolve, reject) => {
      const starts = this.#starts(job.prompts);
      const values = new Float32Array(starts.at(-1) as number);
      const run: PoolRun = {
        job,
        values,
        starts,
        live: new Set(),
        request: { hasBegun: job.hasBegun },
        next: 0,
        resolve,
        reject,
      };
      this.#adapters.use(job.adapter, run);
      const runs = this.#runs.get(subscriber) ?? new Map<number, PoolRun>();
      this.#runs.set(subscriber, runs.set(id, run));
      this.#advance(subscriber, id, run);
    });
  }

  #starts(prompts: readonly Int32Array[]): readonly number[] {
    const starts = [0];
    for (const { length } of prompts) {
      const outputs = this.#pooling === "tokens" ? length : 1;
      starts.push((starts.at(-1) as number) + outputs * this.#length);
    }
    return starts;
  }

  cancel(subscriber: Subscriber, id: number): void {
    const run = this.#runs.get(subscriber)?.get(id);
    if (run) this.#finish(subscriber, id, run, new ServerError("peer_gone", "the request was cancelled"));
  }

  drop(subscriber: Subscriber): void {
    for (const id of [...(this.#runs.get(subscriber)?.keys() ?? [])]) this.cancel(subscriber, id);
    this.#runs.delete(subscriber);
  }

  failAll(error: ErrorRecord): void {
    for (const [subscriber, runs] of this.#runs) {
      for (const [id, run] of [...runs]) this.#finish(subscriber, id, run, fromErrorRecord(error));
    }
  }

  /** Queues prompts of the jobs that wait for room in the queue, if it has room. */
  resume(): void {
    if (!this.#scheduler.hasQueueRoom) return;
    for (const [subscriber, runs] of this.#runs) {
      for (const [id, run] of runs) if (run.live.size === 0) this.#advance(subscriber, id, run);
    }
  }

  /** Queues further prompts of a job until the maximum number of its sequences (`window`) is in the scheduler. */
  #advance(subscriber: Subscriber, id: number, run: PoolRun): void {
    try {
      while (run.live.size < this.#options.window && run.next < run.job.prompts.length) {
        const sequence = this.#sequence(subscriber, id, run, run.next);
        if (!this.#tryAdd(sequence, run)) return;
        run.next++;
        run.live.add(sequence);
      }
    } catch (error) {
      this.#finish(subscriber, id, run, error as Error);
      return;
    }
    if (run.live.size === 0) this.#finish(subscriber, id, run, null);
  }

  /**
   * Queues a sequence. Returns false if the queue is full but the request must not be refused: because other sequences of the job
   * are in the scheduler, so the queue will have room when one of these finishes, or because the request has begun.
   */
  #tryAdd(sequence: PooledSequence, { live, request }: PoolRun): boolean {
    try {
      this.#options.onDisplaced(this.#scheduler.add(sequence, request));
      return true;
    } catch (error) {
      if ((live.size > 0 || request.hasBegun) && error instanceof ServerError && error.code === "queue_full")
        return false;
      throw error;
    }
  }

  #sequence(subscriber: Subscriber, id: number, run: PoolRun, index: number): PooledSequence {
    const { client, prompts, adapter, priority } = run.job;
    const prompt = prompts[index] as Int32Array;
    const sum = run.values.subarray(run.starts[index], run.starts[index + 1]);
    const sink: PoolSink = {
      add: (values, position) => addPooled(sum, values, position, this.#pooling),
      done: () => {
        if (this.#pooling === "mean") for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) / prompt.length;
        run.live.delete(sequence);
        this.#advance(subscriber, id, run);
      },
      fail: (error) => {
        // fail() is called for every evicted sequence of a job; the first call ends the job.
        if (run.live.has(sequence)) this.#finish(subscriber, id, run, fromErrorRecord(error));
      },
    };
    const sequence = new PooledSequence(
      {
        client,
        hasQueueLimit: index === 0 && !run.job.hasBegun,
        prompt,
        maxNewTokens: 0,
        ignoreEos: false,
        adapter,
        priority,
        isPooled: true,
        wantsPromptLogits: false,
      },
      sink,
    );
    return sequence;
  }

  #finish(subscriber: Subscriber, id: number, run: PoolRun, error: Error | null): void {
    this.#runs.get(subscriber)?.delete(id);
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
