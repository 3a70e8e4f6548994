// Thread pool: the grammar threads of one model. One idle thread is kept ready, so new work seldom waits for a start.
// The first thread starts on demand.
import type { ServerError } from "../../../runtime/errors.ts";
import { abandoned } from "./abandoned.ts";
import type { NumberedSource, WorkerSetup } from "./thread/messages.ts";
import { GrammarThread } from "./thread.ts";

/** Threads that stay when all are idle: the most recently reused one, with its grammars, and a spare one. */
const restingCount = 2;
/** Further idle threads stay for this time: work may come back. */
const surplusMs = 5000;
/** No spare thread is started for this time after a failed start. */
const restAfterFailureMs = 5000;
/** The most recently reused thread takes no other grammar for this time. */
const reservedMs = 5000;

export class ThreadPool {
  readonly #setup: Omit<WorkerSetup, "control">;
  readonly #onLost: (thread: GrammarThread) => void;
  /** Threads that have not ended. */
  readonly #threads = new Set<GrammarThread>();
  /** Ended threads whose workers have not exited yet. */
  readonly #leaving = new Set<Promise<void>>();
  #surplusSinceMs = 0;
  #failedMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  /** `onLost` is called for each thread that has ended. */
  constructor(setup: Omit<WorkerSetup, "control">, onLost: (thread: GrammarThread) => void) {
    this.#setup = setup;
    this.#onLost = onLost;
  }

  get all(): readonly GrammarThread[] {
    return [...this.#threads];
  }

  /**
   * An idle thread: one that has compiled `grammar`, else the least recently reused one, else a new one. Throws
   * `model_failed` if the system cannot start one.
   */
  claim(grammar?: NumberedSource): GrammarThread {
    const holder = grammar && this.idleHolder(grammar);
    if (holder) return holder;
    const idle = this.#claimable().sort(GrammarThread.byLastReuse);
    return idle.find(({ isReady }) => isReady) ?? idle[0] ?? this.#start();
  }

  /** An idle thread that has compiled `grammar`, if any. */
  idleHolder(grammar: NumberedSource): GrammarThread | undefined {
    return this.all.find((thread) => thread.isIdle && !thread.isSlow && thread.has(grammar));
  }

  /**
   * Starts the spare thread if there is none and the system allows it. Not while another thread starts: a start takes 0.6 s of
   * processor time, and two at once slow all requests on two cores.
   */
  keepSpare(nowMs: number): void {
    const hasFailed = nowMs - this.#failedMs < restAfterFailureMs;
    const canStart = !this.#isClosed && this.#threads.size > 0 && this.all.every(({ isReady }) => isReady);
    if (hasFailed || !canStart || (this.#claimable().length > 0 && this.#threads.size >= restingCount)) return;
    try {
      this.#start();
    } catch {
      // The next request that needs a thread tries again and gets the error.
      this.#failedMs = nowMs;
    }
  }

  /** Ends idle threads that are not needed. Returns whether all others may stay as they are. */
  trim(nowMs: number): boolean {
    for (const thread of this.#threads) if (thread.isIdle && (thread.isFull || thread.isSlow)) thread.end(abandoned());
    const idle = this.#idle();
    if (idle.length <= restingCount) this.#surplusSinceMs = nowMs;
    else if (nowMs - this.#surplusSinceMs > surplusMs) {
      idle.sort((a, b) => Number(a.isLow) - Number(b.isLow) || GrammarThread.byLastReuse(b, a));
      for (const thread of idle.slice(restingCount)) thread.end(abandoned());
    }
    return this.all.every(({ isReady, isIdle }) => isReady && isIdle) && this.#threads.size <= restingCount;
  }

  async close(reason: ServerError): Promise<void> {
    this.#isClosed = true;
    for (const thread of this.#threads) thread.end(reason);
    await Promise.all(this.#leaving);
  }

  #idle(): GrammarThread[] {
    return this.all.filter((thread) => thread.isIdle && !thread.isFull && !thread.isSlow);
  }

  /**
   * Idle threads for any work: not the thread reserved for its grammars, nor low-priority threads with a grammar that
   * took long to compile.
   */
  #claimable(): GrammarThread[] {
    const reservedFromMs = Math.max(performance.now() - reservedMs, ...this.all.map((thread) => thread.lastReuseMs));
    return this.#idle().filter((thread) => !thread.isLow && thread.lastReuseMs < reservedFromMs);
  }

  #start(): GrammarThread {
    const thread = new GrammarThread(this.#setup, () => this.#lose(thread));
    this.#threads.add(thread);
    return thread;
  }

  #lose(thread: GrammarThread): void {
    this.#threads.delete(thread);
    this.#leaving.add(thread.gone);
    void thread.gone.then(() => this.#leaving.delete(thread.gone));
    this.#onLost(thread);
  }
}
