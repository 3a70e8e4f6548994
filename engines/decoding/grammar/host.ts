// Grammar host: constrained decoding for one model. It keeps the compiled grammars and the threads that compile
// grammars and compute token masks. The host is called on the model's thread, which must not wait, so it computes no
// masks itself.
import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { LruMap } from "../../../runtime/collections.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { GrammarSource } from "../../grammar-source.ts";
import { RefusedGrammars } from "../../text/constraints/refused-grammars.ts";
import * as limits from "./limits.ts";
import type { CompiledGrammar, GrammarAsker, GrammarHost, Matcher } from "./matcher.ts";
import { type MatcherKeeper, MatcherProxy, type ProvedGrammar } from "./matcher-proxy.ts";
import { MatcherThreads } from "./matcher-threads.ts";
import { Proofs } from "./proofs.ts";
import type { GrammarThread } from "./thread.ts";
import { ThreadPool } from "./thread-pool.ts";

export interface GrammarHostOptions {
  readonly modelPath: string;
  /** Number of logits per position of the model. */
  readonly vocabSize: number;
  readonly endOfGeneration: readonly number[];
  /** Maximum number of open matchers. */
  readonly maxMatchers: number;
  /** Maximum number of threads shared by the matchers of grammars that compile quickly. */
  readonly threads?: number;
  /** Maximum time to compile one grammar, in ms. */
  readonly compileLimitMs?: number;
  /** Maximum time to compute one token mask, in ms. */
  readonly answerLimitMs?: number;
  /** Maximum number of compiled grammars in the cache. */
  readonly cacheLimit?: number;
}

export function createGrammarHost(options: GrammarHostOptions): GrammarHost {
  return new ThreadedGrammarHost(options);
}

interface KeptGrammar {
  readonly proved: ProvedGrammar;
  readonly compiled: CompiledGrammar;
}

/** Interval in ms at which the threads that have work are checked against the time limits. */
const lookMs = 50;

class ThreadedGrammarHost implements GrammarHost, MatcherKeeper {
  readonly vocabSize: number;
  readonly #options: GrammarHostOptions;
  readonly #pool: ThreadPool;
  readonly #matchers: MatcherThreads;
  readonly #proofs: Proofs;
  readonly #refusals = new RefusedGrammars();
  /** Compiled grammars by digest of their source. */
  readonly #grammars: LruMap<string, KeptGrammar>;
  #matcherCount = 0;
  #nextId = 1;
  #watch: NodeJS.Timeout | null = null;
  #isDisposed = false;

  constructor(options: GrammarHostOptions) {
    const { modelPath, vocabSize, endOfGeneration } = options;
    const { compileLimitMs = limits.compileLimitMs, answerLimitMs = limits.answerLimitMs } = options;
    this.vocabSize = vocabSize;
    this.#options = options;
    this.#grammars = new LruMap<string, KeptGrammar>(options.cacheLimit ?? 64);
    const pool = new ThreadPool({ modelPath, vocabSize, endOfGeneration }, (thread) => this.#lost(thread));
    this.#pool = pool;
    this.#matchers = new MatcherThreads({
      pool,
      maxShared: options.threads ?? 2,
      compileLimitMs,
      answerLimitMs,
      onTooSlow: ({ digest }, error) => this.#refuse(digest, error),
    });
    this.#proofs = new Proofs({
      pool,
      maxAskers: options.maxMatchers,
      compileLimitMs,
      onProved: (grammar) => this.#keep(grammar),
      onRefused: (digest, error) => this.#refuse(digest, error),
    });
  }

  async compile(source: GrammarSource, asker: GrammarAsker): Promise<CompiledGrammar> {
    if (this.#isDisposed) throw unloading();
    const digest = createHash("sha256").update(JSON.stringify(source)).digest("base64");
    const refusal = this.#refusals.of(digest, performance.now());
    if (refusal !== null) throw refusal;
    const kept = this.#grammars.get(digest);
    if (kept !== undefined) return kept.compiled;
    this.#startWatch();
    return this.#proofs.ask(digest, { id: this.#nextId++, source }, asker);
  }

  async dispose(): Promise<void> {
    this.#isDisposed = true;
    this.#stopWatch();
    this.#proofs.close(unloading());
    await this.#pool.close(unloading());
  }

  answered(matcher: MatcherProxy): void {
    this.#matchers.answered(matcher);
  }

  closed(): void {
    this.#matcherCount--;
  }

  #keep(proved: ProvedGrammar): CompiledGrammar {
    const compiled = { open: () => this.#open(proved) };
    const dropped = this.#grammars.setpop(proved.digest, { proved, compiled });
    if (dropped?.evicted) for (const thread of this.#pool.all) thread.forget(dropped.value.proved);
    return compiled;
  }

  #refuse(digest: string, error: ServerError): void {
    this.#grammars.delete(digest);
    this.#refusals.add(digest, error, performance.now());
  }

  #open(grammar: ProvedGrammar): Matcher {
    const { maxMatchers } = this.#options;
    if (this.#isDisposed) throw unloading();
    if (this.#matcherCount >= maxMatchers) throw tooManyMatchers(maxMatchers);
    const thread = this.#matchers.place(grammar, false);
    this.#matcherCount++;
    const matcher = new MatcherProxy(this.#nextId++, grammar, thread, this);
    this.#startWatch();
    return matcher;
  }

  #lost(thread: GrammarThread): void {
    if (this.#isDisposed) for (const matcher of thread.matchers.values()) matcher.fail(unloading());
    else this.#matchers.lost(thread);
  }

  /** Starts the periodic check, which runs while any thread has work. */
  #startWatch(): void {
    this.#watch ??= setInterval(() => this.#look(), lookMs).unref();
  }

  #stopWatch(): void {
    clearInterval(this.#watch ?? undefined);
    this.#watch = null;
  }

  #look(): void {
    const now = performance.now();
    for (const thread of this.#pool.all) {
      const { task, busyMs } = thread.look(now);
      if (task === 0) continue;
      if (thread.isProving) this.#proofs.look(thread, task, busyMs);
      else this.#matchers.look(thread, task, busyMs);
    }
    this.#pool.keepSpare(now);
    if (this.#pool.trim(now)) this.#stopWatch();
  }
}

function tooManyMatchers(maxMatchers: number): ServerError {
  return new ServerError(
    "queue_full",
    `the limit of ${maxMatchers} outputs that follow grammars is reached; try again later`,
  );
}

function unloading(): ServerError {
  return new ServerError("draining", "the model is being unloaded; try again");
}
