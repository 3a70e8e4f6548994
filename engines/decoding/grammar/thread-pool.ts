// Thread pool: the grammar threads of one model. One idle thread is kept ready, so new work seldom waits for a thread
// to start. The first thread is started on demand.
import type { ServerError } from "../../../runtime/errors.ts";
import { abandoned } from "./abandoned.ts";
import type { NumberedSource, WorkerSetup } from "./thread/messages.ts";
import { GrammarThread } from "./thread.ts";

/**
 * Number of threads that are kept when all threads are idle: the thread whose grammars were most recently reused, and a
 * spare thread.
 */
const restingCount = 2;
/** Time in ms for which more than `restingCount` idle threads are kept, because more work may come. */
const surplusMs = 5000;
/** Time in ms after a failed start during which no spare thread is started. */
const restAfterFailureMs = 5000;
/** Time in ms for which the most recently reused thread is reserved for the grammars that it has compiled. */
const reservedMs = 5000;

export class ThreadPool {
  readonly #setup: Omit<WorkerSetup, "control">;
  readonly #onLost: (thread: GrammarThread) => void;
  /** Threads that are running. */
  readonly #threads = new Set<GrammarThread>();
  /** Ended threads whose workers have not exited yet. */
  readonly #leaving = new Set<Promise<void>>();
  #surplusSinceMs = 0;
  #failedMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  /** `onLost` is called with each thread that has ended. */
  constructor(setup: Omit<WorkerSetup, "control">, onLost: (thread: GrammarThread) => void) {
    this.#setup = setup;
    this.#onLost = onLost;
  }

  get all(): readonly GrammarThread[] {
    return [...this.#threads];
  }

  /**
   * Returns an idle thread: a thread that has compiled `grammar`, else the least recently reused thread that is ready,
   * else any other idle thread, else a new thread. Throws `model_failed` if the operating system cannot start a thread.
   */
  claim(grammar?: NumberedSource): GrammarThread {
    const holder = grammar && this.idleHolder(grammar);
    if (holder) return holder;
    const idle = this.#claimable().sort(GrammarThread.byLastReuse);
    return idle.find(({ isReady }) => isReady) ?? idle[0] ?? this.#start();
  }

  /** Returns an idle thread that has compiled `grammar`, or undefined. */
  idleHolder(grammar: NumberedSource): GrammarThread | undefined {
    return this.all.find((thread) => thread.isIdle && !thread.isSlow && thread.has(grammar));
  }

  /**
   * Starts the spare thread if there is none and the operating system allows it. Does nothing while another thread
   * starts: a start takes 0.6 s of processor time, and two simultaneous starts slow all requests on two cores.
   */
  keepSpare(nowMs: number): void {
    const hasFailed = nowMs - this.#failedMs < restAfterFailureMs;
    const canStart = !this.#isClosed && this.#threads.size > 0 && this.all.every(({ isReady }) => isReady);
    if (hasFailed || !canStart || (this.#claimable().length > 0 && this.#threads.size >= restingCount)) return;
    try {
      this.#start();
    } catch {
      // The error is dropped here: the next request that needs a thread tries to start one and gets the error.
      this.#failedMs = nowMs;
    }
  }

  /**
   * Ends idle threads that are not needed. Returns true if all remaining threads are ready and
   * idle, so nothing is left to check.
   */
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
   * Returns the idle threads that can take any new work. Excludes the thread that is reserved for its compiled
   * grammars. Also excludes low-priority threads, whose grammars took long to compile.
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
