// MatcherThreads: assigns matchers to grammar threads. Quick matchers share threads. Slow matchers, and matchers of
// grammars that take long to compile, run on separate threads. If a thread ends, the matcher that it was serving fails,
// and its other matchers move to another thread.
import { ServerError } from "../../../runtime/errors.ts";
import { abandoned } from "./abandoned.ts";
import { slowAnswerMs, slowCompileMs } from "./limits.ts";
import type { MatcherProxy, ProvedGrammar } from "./matcher-proxy.ts";
import type { GrammarThread } from "./thread.ts";
import type { ThreadPool } from "./thread-pool.ts";

/**
 * Maximum number of threads that may end for an unknown reason while they serve the same matcher. After one more, the
 * matcher is assumed to be the cause and fails.
 */
const maxLosses = 2;
/** Maximum total processor time in ms that one sequence may take for slow token masks. */
const slowLimitMs = 10_000;

export interface MatcherThreadsOptions {
  readonly pool: ThreadPool;
  /**
   * Maximum number of threads for matchers of quick grammars. The same limit applies separately to matchers of grammars
   * that take long to compile. The limit is doubled if an idle thread has already compiled the grammar.
   */
  readonly maxShared: number;
  readonly compileLimitMs: number;
  readonly answerLimitMs: number;
  /** Called for each grammar whose token masks took too long to compute. */
  readonly onTooSlow: (grammar: ProvedGrammar, error: ServerError) => void;
}

export class MatcherThreads {
  readonly #options: MatcherThreadsOptions;

  constructor(options: MatcherThreadsOptions) {
    this.#options = options;
  }

  /** Returns the thread for a new matcher of a grammar. Compiles the grammar on that thread if necessary. */
  place(grammar: ProvedGrammar, isSlow: boolean): GrammarThread {
    const thread = isSlow ? this.#slowThread(grammar) : this.#sharedThread(grammar);
    void thread.compile(grammar);
    return thread;
  }

  /**
   * Checks the limits of a matcher after its token mask has been used. Gives a slow matcher a separate thread. Fails a
   * matcher that took too much time in total.
   */
  answered(matcher: MatcherProxy): void {
    const { loadMs, slowMs: takenMs } = matcher.pace;
    if (takenMs > slowLimitMs) this.#refuse(matcher, `more than ${slowLimitMs / 1000} s in all`);
    else if (loadMs > slowAnswerMs && !matcher.isSlow) this.#isolate(matcher, false);
  }

  /**
   * Checks a thread that has worked for `busyMs` on `task` (the id of a matcher or a grammar). Above the limits, gives
   * the matcher a separate thread or ends the thread.
   */
  look(thread: GrammarThread, task: number, busyMs: number): void {
    if (busyMs < slowAnswerMs) return;
    const { answerLimitMs, compileLimitMs } = this.#options;
    const matcher = thread.matchers.get(task);
    if (matcher !== undefined && busyMs < answerLimitMs) this.#isolate(matcher, true);
    else if (matcher !== undefined) {
      this.#refuse(matcher, `more than ${answerLimitMs / 1000} s for one token`);
      thread.end(abandoned());
    } else if (!thread.isCompiling(task)) thread.end(abandoned());
    else if (busyMs >= compileLimitMs) thread.refuse(task, compileLimitMs);
  }

  /** Moves the matchers of a thread that has ended to other threads. The matcher that the thread was serving fails. */
  lost(thread: GrammarThread): void {
    const { current } = thread.control;
    for (const matcher of [...thread.matchers.values()]) {
      const isReason = matcher.id === current;
      if (current === 0 || matcher.grammar.id === current) matcher.losses++;
      if (isReason || matcher.losses > maxLosses) matcher.fail(brokenMatcher());
      else this.#move(matcher);
    }
  }

  /** Gives a slow matcher a separate thread. `isBusy`: the thread is computing a mask of this matcher now. */
  #isolate(matcher: MatcherProxy, isBusy: boolean): void {
    const thread = this.#options.pool.all.find(({ matchers }) => matchers.has(matcher.id));
    matcher.isSlow = true;
    if (thread === undefined || thread.isSlow) return;
    const others = [...thread.matchers.values()].filter((one) => one !== matcher);
    if (this.#slow() === undefined && (isBusy || others.length === 0)) {
      thread.slowDown();
      for (const other of others) this.#move(other);
    } else {
      this.#move(matcher);
      if (isBusy) thread.end(abandoned());
    }
  }

  #refuse(matcher: MatcherProxy, took: string): void {
    const error = tooSlow(matcher.grammar, took);
    matcher.fail(error);
    this.#options.onTooSlow(matcher.grammar, error);
  }

  #move(matcher: MatcherProxy): void {
    try {
      matcher.move(this.place(matcher.grammar, matcher.isSlow));
    } catch (error) {
      matcher.fail(error as ServerError);
    }
  }

  #slow(): GrammarThread | undefined {
    return this.#options.pool.all.find(({ isSlow }) => isSlow);
  }

  #slowThread(grammar: ProvedGrammar): GrammarThread {
    const known = this.#slow();
    if (known) return known;
    const thread = this.#options.pool.claim(grammar);
    thread.slowDown();
    return thread;
  }

  /**
   * Returns the thread for a quick matcher. Grammars that take long to compile get separate threads, because other
   * matchers would have to wait for the compilation.
   */
  #sharedThread(grammar: ProvedGrammar): GrammarThread {
    const { pool, maxShared } = this.#options;
    const isHeavy = takesLong(grammar);
    const shared = pool.all.filter((thread) => isShared(thread) && isOfHeavy(thread) === isHeavy);
    const holder = shared.find((thread) => thread.has(grammar));
    if (holder) return holder;
    if (shared.length < maxShared) return pool.claim(grammar);
    // Using one more thread costs less than compiling the grammar again. So an idle thread that has compiled the
    // grammar is used, up to twice `maxShared` threads.
    const idleHolder = shared.length < 2 * maxShared ? pool.idleHolder(grammar) : undefined;
    return idleHolder ?? leastBusy(shared.filter(({ isFull }) => !isFull));
  }
}

function isShared({ isSlow, matchers }: GrammarThread): boolean {
  return !isSlow && matchers.size > 0;
}

function isOfHeavy({ matchers }: GrammarThread): boolean {
  return [...matchers.values()].some(({ grammar }) => takesLong(grammar));
}

function takesLong({ compileMs }: ProvedGrammar): boolean {
  return compileMs > slowCompileMs;
}

function leastBusy(threads: readonly GrammarThread[]): GrammarThread {
  const [best] = [...threads].sort((a, b) => a.matchers.size - b.matchers.size);
  if (best) return best;
  throw new ServerError("queue_full", "the memory for grammars is full; try again later");
}

function tooSlow({ source }: ProvedGrammar, took: string): ServerError {
  const message = `matching the output against this grammar takes ${took}; make it less ambiguous`;
  return new ServerError("unsupported", message, { param: source.param });
}

function brokenMatcher(): ServerError {
  return new ServerError("model_failed", "the grammar engine has failed on this output; try again");
}
