// Owns constrained decoding of one model: which grammars are compiled, on which grammar thread, and where matchers live. Called
// by the model's place; it never matches itself.
//
// Compiling may abort, hang or fill memory, and takes its thread along. So a source is first compiled on a thread without
// matchers, one source at a time. Once it has passed it is good, and may be compiled again beside matchers, which wait for
// that: where its thread has ended since, or where as many threads as may have matchers have some. Should a thread end under
// matchers nevertheless, all but the one it worked for go on elsewhere.
import assert from "node:assert/strict";
import { ServerError } from "../../runtime/errors.ts";
import { LiveMatcher, type MatcherKeeper } from "./live-matcher.ts";
import type { CompiledGrammar, GrammarHost, Matcher } from "./matcher.ts";
import type { GrammarSource } from "./source.ts";
import { GrammarThread, type NumberedSource } from "./thread.ts";

export interface GrammarHostOptions {
  readonly modelPath: string;
  /** Tokens of the model's logits. */
  readonly vocabSize: number;
  readonly endOfGeneration: readonly number[];
  /** Most matchers open at once. */
  readonly maxMatchers: number;
  /** Threads that matchers are spread over; one more may compile meanwhile. */
  readonly threads?: number;
  /** Longest time one grammar may take. */
  readonly compileLimitMs?: number;
  /** Longest time the step loop waits for one answer: most take some 50 us. */
  readonly answerLimitMs?: number;
  /** Compiled grammars that are kept. */
  readonly cacheLimit?: number;
}

export function createGrammarHost(options: GrammarHostOptions): GrammarHost {
  return new ThreadedGrammarHost(options);
}

interface CachedGrammar extends NumberedSource {
  readonly compiled: Promise<CompiledGrammar>;
}

class ThreadedGrammarHost implements GrammarHost, MatcherKeeper {
  readonly vocabSize: number;
  readonly answerLimitMs: number;
  readonly #options: GrammarHostOptions;
  readonly #maxServing: number;
  /** Those that have not ended. */
  readonly #threads = new Set<GrammarThread>();
  /** Those that have, until nothing is left of them. */
  readonly #leaving = new Set<Promise<void>>();
  /** By source, the one used last at the end. */
  readonly #grammars = new Map<string, CachedGrammar>();
  /** Settles when all sources so far have been proved. */
  #proofs: Promise<unknown> = Promise.resolve();
  /** The thread that compiles a source not yet known to be good. */
  #proving: GrammarThread | null = null;
  #matcherCount = 0;
  #nextId = 1;
  #isDisposed = false;

  constructor(options: GrammarHostOptions) {
    this.vocabSize = options.vocabSize;
    this.answerLimitMs = options.answerLimitMs ?? 3000;
    this.#options = options;
    this.#maxServing = options.threads ?? 2;
  }

  compile(source: GrammarSource): Promise<CompiledGrammar> {
    const key = JSON.stringify(source);
    const grammar = this.#grammars.get(key) ?? this.#begin(key, source);
    this.#grammars.delete(key);
    this.#grammars.set(key, grammar);
    if (this.#grammars.size > (this.#options.cacheLimit ?? 64)) this.#dropOldest();
    return grammar.compiled;
  }

  async dispose(): Promise<void> {
    this.#isDisposed = true;
    for (const thread of this.#threads) thread.end(unloading());
    await Promise.all(this.#leaving);
  }

  replace(thread: GrammarThread): void {
    thread.end(new ServerError("model_failed", "a grammar thread has not answered in time; try again"));
  }

  closed(): void {
    this.#matcherCount--;
    this.#endFullThreads();
  }

  #begin(key: string, source: GrammarSource): CachedGrammar {
    const numbered = { id: this.#nextId++, source };
    const compiled = this.#proofs.then(() => this.#prove(numbered));
    this.#proofs = compiled.catch(() => this.#grammars.delete(key));
    return { ...numbered, compiled };
  }

  /** Compiles a source where it can do no harm. */
  async #prove(grammar: NumberedSource): Promise<CompiledGrammar> {
    if (this.#isDisposed) throw unloading();
    this.#endFullThreads();
    const idle = [...this.#threads].find((thread) => thread.matchers.size === 0);
    this.#proving = idle ?? this.#start();
    try {
      await this.#proving.compile(grammar);
    } finally {
      this.#proving = null;
    }
    return { open: () => this.#open(grammar) };
  }

  #open(grammar: NumberedSource): Matcher {
    const { maxMatchers } = this.#options;
    if (this.#isDisposed) throw unloading();
    assert(this.#matcherCount < maxMatchers, `at most ${maxMatchers} matchers at once`);
    const thread = this.#place(grammar);
    this.#matcherCount++;
    return new LiveMatcher(this.#nextId++, grammar, thread, this);
  }

  /** The thread for one more matcher of a good grammar, which is compiled there first where it is not. */
  #place(grammar: NumberedSource): GrammarThread {
    const usable = [...this.#threads].filter((thread) => thread !== this.#proving);
    const serving = usable.filter((thread) => thread.matchers.size > 0);
    const mayGrow = serving.length < this.#maxServing;
    const holder = (mayGrow ? usable : serving).find((thread) => thread.has(grammar));
    if (holder) return holder;
    const fits = (mayGrow ? usable : serving).filter((thread) => !thread.isFull);
    const idle = fits.find((thread) => thread.matchers.size === 0);
    const thread = mayGrow ? (idle ?? this.#start()) : leastBusy(fits);
    void thread.compile(grammar);
    return thread;
  }

  #start(): GrammarThread {
    const { modelPath, vocabSize, endOfGeneration, compileLimitMs } = this.#options;
    const setup = { modelPath, vocabSize, endOfGeneration };
    const thread = new GrammarThread(setup, compileLimitMs ?? 10_000, () => this.#lost(thread));
    this.#threads.add(thread);
    return thread;
  }

  /** A thread has ended: its matchers go on elsewhere, but for the one it ended with. */
  #lost(thread: GrammarThread): void {
    this.#threads.delete(thread);
    this.#leaving.add(thread.gone);
    void thread.gone.then(() => this.#leaving.delete(thread.gone));
    for (const matcher of thread.matchers) {
      if (this.#isDisposed) matcher.fail(unloading());
      else if (matcher.id === thread.control.current || !matcher.canMove) matcher.fail(brokenMatcher());
      else this.#move(matcher);
    }
  }

  #move(matcher: LiveMatcher): void {
    try {
      matcher.move(this.#place(matcher.grammar));
    } catch (error) {
      matcher.fail(error as ServerError);
    }
  }

  #endFullThreads(): void {
    for (const thread of this.#threads) {
      if (thread.isFull && thread.matchers.size === 0) thread.end(unloading());
    }
  }

  #dropOldest(): void {
    const [oldest] = this.#grammars;
    if (!oldest) return;
    const [key, grammar] = oldest;
    this.#grammars.delete(key);
    for (const thread of this.#threads) thread.forget(grammar);
  }
}

function leastBusy(threads: readonly GrammarThread[]): GrammarThread {
  const [best] = [...threads].sort((a, b) => a.matchers.size - b.matchers.size);
  if (best) return best;
  throw new ServerError("queue_full", "the grammars in use take all the memory there is for them; try again later");
}

function brokenMatcher(): ServerError {
  const message = "the grammar engine cannot go on with this output: it has failed or takes too long; try again";
  return new ServerError("model_failed", message);
}

function unloading(): ServerError {
  return new ServerError("draining", "the model is being unloaded; try again");
}
