// Grammar thread: the model thread's handle to one grammar worker. It tracks the compiled grammars of the worker, the
// time of its current work, and its end. A worker that has ended is never restarted; `onEnd` notifies the owner.
import { Worker } from "node:worker_threads";
import { type Deferred, deferred } from "../../../runtime/deferred.ts";
import { fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import { hasReachedHeapLimit } from "../../../runtime/thread/heap-limit.ts";
import { lowerPriority, ThreadClock } from "../../../runtime/thread/system-thread.ts";
import type { GrammarSource } from "../../grammar-source.ts";
import type { MatcherProxy } from "./matcher-proxy.ts";
import { Control } from "./thread/control.ts";
import type { NumberedSource, WorkerOrder, WorkerReport, WorkerSetup } from "./thread/messages.ts";

/** Maximum time in ms until a thread is ready. Reading a large vocabulary takes a second on an idle machine. */
const startLimitMs = 60_000;
/**
 * Maximum time in ms between two checks that counts as working time of the thread. If more time has passed, the whole
 * process was probably suspended.
 */
const longestLookMs = 1000;
/**
 * Minimum share of a processor core that a working thread is assumed to get, even if its measured processor time is
 * less.
 */
const leastShare = 0.1;
/**
 * Maximum size of a thread's JavaScript heap: `heapMiB`, plus `heapBytesPerToken` for each token of the
 * vocabulary. A vocabulary takes about 0.4 KiB per token, and three times as much while it is read.
 */
const heapMiB = 256;
const heapBytesPerToken = 2048;

/** A compilation, with the promise of its time in ms. */
interface Compilation extends Deferred<number> {
  readonly source: GrammarSource;
}

export class GrammarThread {
  readonly control = new Control();
  /** Matchers by id. Ids are unique among matchers and grammars. */
  readonly matchers = new Map<number, MatcherProxy>();
  /** Whether the thread is running the first compilation of a grammar. */
  isProving = false;
  /** Whether the thread uses too much memory and gets no new grammars. */
  isFull = false;
  /** Resolves when the worker has exited. */
  readonly gone: Promise<void>;
  readonly #worker: Worker;
  readonly #heapMiB: number;
  readonly #onEnd: (thread: GrammarThread) => void;
  /** Ids of the compiled grammars. */
  readonly #compiled = new Set<number>();
  readonly #compilations = new Map<number, Compilation>();
  readonly #startedMs = performance.now();
  #isReady = false;
  #isSlow = false;
  #isLow = false;
  #hasEnded = false;
  /** The operating system's thread id; null until it is known. */
  #number: number | null = null;
  #clock: ThreadClock | null = null;
  /** Ids of the grammars that have had a matcher on this thread. */
  readonly #opened = new Set<number>();
  #lastReuseMs = Number.NEGATIVE_INFINITY;
  #lastMatcherMs = 0;
  /**
   * State of the last check: the number of the current work item, the processor time when this item was first seen, the
   * wall-clock time since then, and the time of the check. Times are in ms.
   */
  #begunSeen = 0;
  #firstMs: number | null = null;
  #sinceMs = 0;
  #lookedMs = 0;

  /** Starts a worker. Throws `model_failed` if the operating system cannot start a thread. */
  constructor(setup: Omit<WorkerSetup, "control">, onEnd: (thread: GrammarThread) => void) {
    const workerData: WorkerSetup = { ...setup, control: this.control.memory };
    this.#onEnd = onEnd;
    this.#heapMiB = heapMiB + Math.ceil((setup.vocabSize * heapBytesPerToken) / 2 ** 20);
    this.#worker = startWorker(workerData, this.#heapMiB);
    this.#worker.on("message", (report: WorkerReport) => this.#receive(report));
    this.#worker.on("error", (cause) => this.#crash(cause));
    this.gone = new Promise((resolve) => this.#worker.once("exit", () => resolve()));
    void this.gone.then(() => {
      this.#clock?.close();
      this.end(failure("it has ended"));
    });
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Whether the thread serves slow matchers only. */
  get isSlow(): boolean {
    return this.#isSlow;
  }

  /** Makes the thread serve slow matchers only, at low priority, from now on. */
  slowDown(): void {
    this.#isSlow = true;
    this.giveWay();
  }

  /** Whether the thread runs at low priority. */
  get isLow(): boolean {
    return this.#isLow;
  }

  /** Lowers the priority of the thread permanently. */
  giveWay(): void {
    this.#isLow = true;
    if (this.#number !== null) lowerPriority(this.#number);
  }

  /** Whether the thread can compute token masks now: it is ready and not compiling. */
  get isServing(): boolean {
    return this.#isReady && this.#compilations.size === 0;
  }

  /** Whether the thread has no matchers and no work, including abandoned work. */
  get isIdle(): boolean {
    const isNeeded = this.isProving || this.matchers.size > 0 || this.#compilations.size > 0;
    return !isNeeded && this.control.current === 0;
  }

  isCompiling(grammar: number): boolean {
    return this.#compilations.has(grammar);
  }

  /** Whether the thread has compiled the grammar or is compiling it. */
  has({ id }: NumberedSource): boolean {
    return this.#compiled.has(id) || this.#compilations.has(id);
  }

  /**
   * Compiles a grammar unless this thread has already compiled it. Resolves to the time taken in ms. If the grammar
   * cannot be compiled, rejects with the reason; the thread has then ended.
   */
  compile({ id, source }: NumberedSource): Promise<number> {
    const known = this.#compilations.get(id);
    if (known) return known.promise;
    if (this.#compiled.has(id)) return Promise.resolve(0);
    const compiled = deferred<number>();
    // If a known grammar is compiled again for a matcher, no request waits for the result. So a
    // rejection may have no other handler.
    compiled.promise.catch(() => undefined);
    this.#compilations.set(id, { ...compiled, source });
    this.#order({ type: "compile", grammar: id, source });
    return compiled.promise;
  }

  /**
   * Returns the thread's current work. `task`: id of a matcher or a grammar (0: none). `busyMs`: processor time since
   * this work was first seen; wall-clock time if the processor time is unknown. Ends the thread if it was not ready in
   * time.
   */
  look(nowMs: number): { readonly task: number; readonly busyMs: number } {
    if (!this.#isReady && nowMs - this.#startedMs > startLimitMs) {
      this.end(failure(`it has not started within ${startLimitMs / 1000} s`));
    }
    // `current` is read before `begun`, so that work that begins between the two reads counts as new.
    const task = this.control.current;
    const { begun } = this.control;
    const isSame = begun === this.#begunSeen;
    const usedMs = task === 0 ? null : (this.#clock?.read() ?? null);
    if (!isSame) this.#firstMs = usedMs;
    this.#sinceMs = isSame ? this.#sinceMs + Math.min(nowMs - this.#lookedMs, longestLookMs) : 0;
    this.#begunSeen = begun;
    this.#lookedMs = nowMs;
    if (task === 0) return { task, busyMs: 0 };
    if (usedMs === null || this.#firstMs === null) return { task, busyMs: this.#sinceMs };
    return { task, busyMs: Math.max(usedMs - this.#firstMs, this.#sinceMs * leastShare) };
  }

  /** Rejects a grammar that exceeded its compile time, and ends the thread. */
  refuse(grammar: number, limitMs: number): void {
    this.#fail(grammar, `it takes more than ${limitMs / 1000} s to compile`);
  }

  open(matcher: MatcherProxy, history: Int32Array): void {
    const { id, grammar, buffer } = matcher;
    // Several simultaneous matchers probably belong to one request, so they do not count as reuse.
    const isInUse = [...this.matchers.values()].some((other) => other.grammar.id === grammar.id);
    if (this.#opened.has(grammar.id) && !isInUse) this.#lastReuseMs = performance.now();
    this.matchers.set(id, matcher);
    this.#opened.add(grammar.id);
    this.#order({ type: "open", matcher: id, grammar: grammar.id, buffer: buffer.memory, history });
  }

  close({ id }: MatcherProxy): void {
    if (!this.matchers.delete(id)) return;
    this.#lastMatcherMs = performance.now();
    this.#order({ type: "close", matcher: id });
  }

  forget(grammar: NumberedSource): void {
    this.#opened.delete(grammar.id);
    if (this.#compiled.delete(grammar.id)) this.#order({ type: "forget", grammar: grammar.id });
  }

  /**
   * Comparator: least recently reused thread first, then the thread whose last matcher was closed earliest. A grammar
   * that was requested twice is likely to be requested again.
   */
  static byLastReuse(this: void, a: GrammarThread, b: GrammarThread): number {
    return a.#lastReuseMs - b.#lastReuseMs || a.#lastMatcherMs - b.#lastMatcherMs;
  }

  /**
   * Time of the last reuse by performance.now(); -Infinity: never. Reuse: a matcher was opened for a grammar that had a
   * matcher on this thread before.
   */
  get lastReuseMs(): number {
    return this.#lastReuseMs;
  }

  /** Ends the thread in any state. Pending compilations are rejected with `reason`. */
  end(reason: ServerError): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const id of [...this.#compilations.keys()]) this.#settle(id, reason);
    void this.#worker.terminate();
    this.#onEnd(this);
  }

  #order(order: WorkerOrder): void {
    if (this.#hasEnded) return;
    this.#worker.postMessage(order);
    this.control.wake();
  }

  #receive(report: WorkerReport): void {
    switch (report.type) {
      case "ready":
        this.#isReady = true;
        this.#number = report.thread;
        this.#clock = new ThreadClock(report.thread);
        if (this.#isLow) this.giveWay();
        return;
      case "compiled":
        this.isFull = report.isFull;
        this.#compiled.add(report.grammar);
        this.#settle(report.grammar, report.tookMs);
        return;
      case "failed":
        this.#fail(report.grammar, report.reason);
        return;
      case "unusable":
        this.end(fromErrorRecord(report.error));
    }
  }

  /**
   * Ends the thread because the grammar engine has failed. If the thread was compiling `grammar`, that compilation is
   * rejected with `invalid_value`.
   */
  #fail(grammar: number | null, reason: string): void {
    const source = grammar === null ? undefined : this.#compilations.get(grammar)?.source;
    if (grammar !== null && source) this.#settle(grammar, refusal(source, reason));
    this.end(failure(reason));
  }

  #crash(cause: Error): void {
    if (hasReachedHeapLimit(cause, this.#heapMiB)) this.#fail(this.control.current, "it takes too much memory");
    else this.end(failure("it has crashed", cause));
  }

  #settle(grammar: number, result: number | ServerError): void {
    const compilation = this.#compilations.get(grammar);
    this.#compilations.delete(grammar);
    if (typeof result === "number") compilation?.resolve(result);
    else compilation?.reject(result);
  }
}

function startWorker(workerData: WorkerSetup, maxOldGenerationSizeMb: number): Worker {
  try {
    return new Worker(new URL("./thread/worker.js", import.meta.url), {
      workerData,
      resourceLimits: { maxOldGenerationSizeMb },
    });
  } catch (cause) {
    throw failure(`it cannot be started (${cause instanceof Error ? cause.message : cause})`, cause);
  }
}

function refusal({ param }: GrammarSource, reason: string): ServerError {
  const message = `expected a grammar that can be compiled, but ${reason}; correct or simplify it`;
  return new ServerError("invalid_value", message, { param });
}

function failure(reason: string, cause?: unknown): ServerError {
  return new ServerError("model_failed", `a grammar thread has failed: ${reason}; try again`, { cause });
}
