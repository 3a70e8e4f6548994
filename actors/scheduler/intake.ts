// Owns jobs until they can be queued: their grammars are compiled, and what the disk has of their prompts is read. Called by
// the model actor; a job that is cancelled meanwhile is never queued.
import type { CompiledGrammar, GrammarHost } from "../../engines/grammar/matcher.ts";
import type { GrammarSource } from "../../engines/grammar/source.ts";
import type { PrefixStore } from "../../engines/prefix-store/prefix-store.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { SequenceJob } from "../messages.ts";
import type { Consumer, StepLoop } from "./step-loop.ts";

export interface IntakeOptions {
  readonly loop: StepLoop;
  /** null where outputs cannot be constrained. */
  readonly grammars: GrammarHost | null;
  /** null where nothing is kept on disk. */
  readonly store: PrefixStore | null;
}

/** Reading fewer tokens than these from disk takes longer than computing them. */
const leastReadTokens = 128;

export class Intake {
  readonly #options: IntakeOptions;
  /** Ids of jobs that are being prepared. */
  readonly #pending = new Map<Consumer, Set<number>>();

  constructor(options: IntakeOptions) {
    this.#options = options;
  }

  /** Queues all jobs or, when one is refused, none; at once where there is nothing to prepare. */
  submit(consumer: Consumer, jobs: readonly SequenceJob[]): void | Promise<void> {
    const { loop } = this.#options;
    const needsNothing = jobs.every((job) => job.grammar === null && this.#stored(job) === null);
    if (needsNothing) return loop.submit(consumer, jobs);
    return this.#submitPrepared(consumer, jobs);
  }

  cancel(consumer: Consumer, ids: readonly number[], how?: "cancelled" | "stop"): void {
    const pending = this.#pending.get(consumer);
    for (const id of ids) pending?.delete(id);
    this.#options.loop.cancel(consumer, ids, how);
  }

  drop(consumer: Consumer): void {
    this.#pending.delete(consumer);
    this.#options.loop.drop(consumer);
  }

  async #submitPrepared(consumer: Consumer, jobs: readonly SequenceJob[]): Promise<void> {
    const pending = this.#pending.get(consumer) ?? new Set<number>();
    this.#pending.set(consumer, pending);
    for (const { id } of jobs) pending.add(id);
    try {
      const grammars = new Map<number, CompiledGrammar>();
      for (const job of jobs) {
        if (job.grammar !== null) grammars.set(job.id, await this.#compile(job.grammar));
        await this.#readPrefix(job);
      }
      const wanted = jobs.filter(({ id }) => this.#pending.get(consumer)?.has(id));
      if (wanted.length > 0) this.#options.loop.submit(consumer, wanted, grammars);
    } finally {
      for (const { id } of jobs) pending.delete(id);
    }
  }

  #compile(grammar: GrammarSource): Promise<CompiledGrammar> {
    const { grammars } = this.#options;
    if (grammars !== null) return grammars.compile(grammar);
    throw new ServerError("unsupported", "this model takes no grammar", { param: "grammar" });
  }

  /** Gives the prefix cache what the disk has of a prompt. */
  async #readPrefix(job: SequenceJob): Promise<void> {
    const stored = this.#stored(job);
    const read = stored && (await this.#options.store?.read(stored));
    // Another one with the same prompt may have been quicker.
    if (read && this.#stored(job) !== null) this.#options.loop.importPrefix(job.adapter, read.tokens, read.bytes);
  }

  #stored({ prompt, adapter }: SequenceJob): ReturnType<PrefixStore["find"]> {
    const stored = this.#options.store?.find(baseGeneration, prompt) ?? null;
    if (stored === null || stored.usable < leastReadTokens) return null;
    const isWhole = stored.usable === stored.tokens && stored.usable < prompt.length;
    if (!isWhole && !this.#options.loop.truncates) return null;
    const cached = this.#options.loop.cachedLength(prompt, adapter);
    return stored.usable >= cached + leastReadTokens ? stored : null;
  }
}

/** The base model has no adapter, and so no generation of one. */
export const baseGeneration = "";
