// Request preparation: compiles the grammars of jobs, reads cached KV of their prompts from disk, then queues the jobs. A job
// that is cancelled during its preparation is never queued.
import type { CompiledGrammar, GrammarHost } from "../../engines/decoding/grammar/matcher.ts";
import type { PrefixStore } from "../../engines/decoding/prefix-store/prefix-store.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { SequenceJob } from "../messages.ts";
import type { StepLoop, Subscriber } from "./step/step-loop.ts";

export interface RequestPreparationOptions {
  readonly loop: StepLoop;
  /** Grammar compiler; null = constrained output is not supported. */
  readonly grammars: GrammarHost | null;
  /** Store of prefixes on disk; null = KV is not stored on disk. */
  readonly store: PrefixStore | null;
}

interface PendingJob {
  readonly job: SequenceJob;
  /** Aborted when the job is cancelled. */
  readonly abandoned: AbortController;
}

/** Minimum number of tokens that reading a prefix from disk must save. For fewer tokens, computing them is faster. Chosen by hand. */
const leastReadTokens = 128;

export class RequestPreparation {
  readonly #options: RequestPreparationOptions;
  /** Jobs in preparation, by subscriber and job id. Each is registered as a user of its adapter. */
  readonly #pending = new Map<Subscriber, Map<number, PendingJob>>();

  constructor(options: RequestPreparationOptions) {
    this.#options = options;
  }

  /** Queues all jobs, or none if one is rejected. Synchronous if there is nothing to prepare. */
  submit(subscriber: Subscriber, jobs: readonly SequenceJob[]): void | Promise<void> {
    const { loop } = this.#options;
    const needsNothing = jobs.every((job) => job.grammar === null && this.#stored(job) === null);
    if (needsNothing) return loop.submit(subscriber, jobs);
    return this.#submitPrepared(subscriber, jobs);
  }

  cancel(subscriber: Subscriber, ids: readonly number[], how?: "cancelled" | "stop"): void {
    for (const id of ids) this.#forget(subscriber, id);
    this.#options.loop.cancel(subscriber, ids, how);
  }

  drop(subscriber: Subscriber): void {
    for (const id of [...(this.#pending.get(subscriber)?.keys() ?? [])]) this.#forget(subscriber, id);
    this.#pending.delete(subscriber);
    this.#options.loop.drop(subscriber);
  }

  async #submitPrepared(subscriber: Subscriber, jobs: readonly SequenceJob[]): Promise<void> {
    const isWanted = (job: SequenceJob) => this.#pending.get(subscriber)?.get(job.id)?.job === job;
    try {
      const pending = jobs.map((job) => this.#remember(subscriber, job));
      const grammars = new Map<number, CompiledGrammar>();
      /** Grammars compiled so far. The choices of a request share one source, and even finding it in the cache takes time. */
      const compiled = new Map<SequenceJob["grammar"], CompiledGrammar>();
      for (const { job, abandoned } of pending) {
        const grammar = compiled.get(job.grammar) ?? (await this.#compile(job, abandoned.signal));
        if (grammar !== null) {
          grammars.set(job.id, grammar);
          compiled.set(job.grammar, grammar);
        }
        await this.#readPrefix(job, isWanted);
      }
      const wanted = jobs.filter(isWanted);
      if (wanted.length > 0) this.#options.loop.submit(subscriber, wanted, grammars);
    } finally {
      for (const job of jobs) if (isWanted(job)) this.#forget(subscriber, job.id);
    }
  }

  /** Registers a job in preparation. Throws `conflict` if its id is in use, and model_failed if its adapter was freed. */
  #remember(subscriber: Subscriber, job: SequenceJob): PendingJob {
    const pending = this.#pending.get(subscriber) ?? new Map<number, PendingJob>();
    if (pending.has(job.id)) throw new ServerError("conflict", `sequence ${job.id} is already being prepared`);
    this.#options.loop.adapters.use(job.adapter, job);
    const remembered = { job, abandoned: new AbortController() };
    this.#pending.set(subscriber, pending.set(job.id, remembered));
    return remembered;
  }

  #forget(subscriber: Subscriber, id: number): void {
    const pending = this.#pending.get(subscriber);
    const forgotten = pending?.get(id);
    if (forgotten === undefined) return;
    pending?.delete(id);
    this.#options.loop.adapters.release(forgotten.job.adapter, forgotten.job);
    forgotten.abandoned.abort();
  }

  /** Compiles the grammar of a job. Returns null if the job has no grammar or is cancelled. */
  async #compile({ client, grammar }: SequenceJob, signal: AbortSignal): Promise<CompiledGrammar | null> {
    const { grammars } = this.#options;
    if (grammar === null || signal.aborted) return null;
    if (grammars === null) throw new ServerError("unsupported", "this model takes no grammar", { param: "grammar" });
    try {
      return await grammars.compile(grammar, { client, signal });
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    }
  }

  /** Reads the stored prefix of a prompt from disk into the prefix cache. */
  async #readPrefix(job: SequenceJob, isWanted: (job: SequenceJob) => boolean): Promise<void> {
    const stored = isWanted(job) ? this.#stored(job) : null;
    const read = stored && (await this.#options.store?.read(stored));
    // During the read, another job may have loaded the same prefix, or the job's adapter may have been freed.
    if (!read || !isWanted(job) || this.#stored(job) === null) return;
    this.#options.loop.importPrefix(job.adapter, read.tokens, read.bytes);
  }

  #stored({ prompt, adapter }: SequenceJob): ReturnType<PrefixStore["find"]> {
    const generation = this.#options.loop.adapters.generationOf(adapter);
    const stored = generation === null ? null : (this.#options.store?.find(generation, prompt) ?? null);
    if (stored === null || stored.usable < leastReadTokens) return null;
    const isWhole = stored.usable === stored.tokens && stored.usable < prompt.length;
    const { prefixes } = this.#options.loop;
    if (!isWhole && !prefixes.canTruncate) return null;
    const cached = prefixes.findCopy({ tokens: prompt, adapter, total: prompt.length })?.length ?? 0;
    return stored.usable >= cached + leastReadTokens ? stored : null;
  }
}
