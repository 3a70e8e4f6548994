// Grammar threads of one model. One idle thread is kept ready, so that new work seldom waits for a start. The first thread
// starts on demand.
import type { ServerError } from "../../../runtime/errors.ts";
import { abandoned } from "./abandoned.ts";
import type { NumberedSource, WorkerSetup } from "./thread/messages.ts";
import { GrammarThread } from "./thread.ts";

/** Threads that stay when all are idle: the most recently reused one, with its grammars, and a spare one. */
const restingCount = 2;
/** Further idle threads stay for this time: the work may come back. */
const surplusMs = 5000;
/** After a failed start, no spare thread is started for this time. */
const restAfterFailureMs = 5000;
/** The most recently reused thread takes no other grammar for this time. */
const reservedMs = 5000;

export class ThreadPool {
  readonly #setup: Omit<WorkerSetup, "control">;
  readonly #onLost: (thread: GrammarThread) => void;
  /** Those that have not ended. */
  readonly #threads = new Set<GrammarThread>();
  /** Those that have ended, until their worker is gone. */
  readonly #leaving = new Set<Promise<void>>();
  #surplusSinceMs = 0;
  #failedMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  /** `onLost` is told of each thread that has ended. */
  constructor(setup: Omit<WorkerSetup, "control">, onLost: (thread: GrammarThread) => void) {
    this.#setup = setup;
    this.#onLost = onLost;
  }

  get all(): readonly GrammarThread[] {
    return [...this.#threads];
  }

  /**
   * An idle thread: one that has compiled `grammar`, else the least recently reused one, else a new one. Throws
   * `model_failed` where the system has none to give.
   */
  claim(grammar?: NumberedSource): GrammarThread {
    const holder = grammar && this.idleHolder(grammar);
    if (holder) return holder;
    const idle = this.#claimable().sort(GrammarThread.byLastReuse);
    return idle.find(({ isReady }) => isReady) ?? idle[0] ?? this.#start();
  }

  /** An idle thread that has compiled `grammar`, if there is one. */
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
      // Whoever needs it tries again, and is told.
      this.#failedMs = nowMs;
    }
  }

  /** Ends idle threads that nobody needs. Returns whether all that are left may stay as they are. */
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
   * Idle ones for whatever comes: not the one that is reserved for its grammars, nor those that keep a grammar which took long to
   * compile, at a low priority.
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
