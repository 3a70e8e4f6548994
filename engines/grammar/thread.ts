// Owns the model's side of one grammar thread: its worker, what has been compiled there, and its end. Called by host.ts, which
// owns what goes where, and by matchers. A thread ends once and for all; whoever it served hears of it by `onEnd`.
import { Worker } from "node:worker_threads";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import { Control } from "./control.ts";
import type { LiveMatcher } from "./live-matcher.ts";
import type { WorkerOrder, WorkerReport, WorkerSetup } from "./messages.ts";
import type { GrammarSource } from "./source.ts";

/** A source under the number by which grammar threads know it. */
export interface NumberedSource {
  readonly id: number;
  readonly source: GrammarSource;
}

/** Reading the vocabulary takes a second where it is large, on a machine that has time. */
const startLimitMs = 60_000;

interface Compilation {
  readonly source: GrammarSource;
  readonly timer: NodeJS.Timeout;
  readonly done: Promise<void>;
  settle(error: ServerError | null): void;
}

export class GrammarThread {
  readonly control = new Control();
  readonly matchers = new Set<LiveMatcher>();
  /** It holds too much memory: it gets nothing new. */
  isFull = false;
  /** Resolves when nothing is left of it. */
  readonly gone: Promise<void>;
  readonly #worker: Worker;
  readonly #onEnd: (thread: GrammarThread) => void;
  readonly #compileLimitMs: number;
  /** Grammars by number. */
  readonly #compiled = new Set<number>();
  readonly #compilations = new Map<number, Compilation>();
  #isReady = false;
  #hasEnded = false;

  constructor(setup: Omit<WorkerSetup, "control">, compileLimitMs: number, onEnd: (thread: GrammarThread) => void) {
    const workerData: WorkerSetup = { ...setup, control: this.control.memory };
    this.#compileLimitMs = compileLimitMs;
    this.#onEnd = onEnd;
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { workerData });
    this.#worker.on("message", (report: WorkerReport) => this.#hear(report));
    this.#worker.on("error", (cause) => this.end(failure("it has crashed", cause)));
    this.gone = new Promise((resolve) => this.#worker.once("exit", () => resolve()));
    void this.gone.then(() => this.end(failure("it has ended")));
  }

  get isCompiling(): boolean {
    return this.#compilations.size > 0;
  }

  /** Whether it has compiled the grammar, or is at it. */
  has({ id }: NumberedSource): boolean {
    return this.#compiled.has(id) || this.#compilations.has(id);
  }

  /** Compiles a grammar, unless it has. Rejects with what is wrong with it, and the thread has ended then. */
  compile({ id, source }: NumberedSource): Promise<void> {
    const known = this.#compilations.get(id);
    if (known) return known.done;
    if (this.#compiled.has(id)) return Promise.resolve();
    const limitMs = this.#compileLimitMs + (this.#isReady ? 0 : startLimitMs);
    const tooSlow = () => this.#fail(id, `it takes more than ${this.#compileLimitMs / 1000} s to compile`);
    const compilation = startCompilation(source, setTimeout(tooSlow, limitMs));
    this.#compilations.set(id, compilation);
    this.#order({ type: "compile", grammar: id, source });
    return compilation.done;
  }

  open(matcher: LiveMatcher, history: Int32Array): void {
    const { id, grammar, sheet } = matcher;
    this.matchers.add(matcher);
    this.#order({ type: "open", matcher: id, grammar: grammar.id, sheet: sheet.memory, history });
  }

  close(matcher: LiveMatcher): void {
    this.matchers.delete(matcher);
    this.#order({ type: "close", matcher: matcher.id });
  }

  forget(grammar: NumberedSource): void {
    if (this.#compiled.delete(grammar.id)) this.#order({ type: "forget", grammar: grammar.id });
  }

  /** Ends it, whatever it is at; what it was to compile is rejected with `reason`. */
  end(reason: ServerError): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const id of [...this.#compilations.keys()]) this.#settle(id, reason);
    void this.#worker.terminate();
    this.#onEnd(this);
  }

  #order(order: WorkerOrder): void {
    this.#worker.postMessage(order);
    this.control.wake();
  }

  #hear(report: WorkerReport): void {
    switch (report.type) {
      case "ready":
        this.#isReady = true;
        return;
      case "compiled":
        this.isFull = report.isFull;
        this.#compiled.add(report.grammar);
        this.#settle(report.grammar, null);
        return;
      case "failed":
        this.#fail(report.grammar, report.reason);
        return;
      case "unusable":
        this.end(fromErrorRecord(report.error));
    }
  }

  /** The grammar engine has failed, on that grammar where it is not null. */
  #fail(grammar: number | null, reason: string): void {
    const source = grammar === null ? undefined : this.#compilations.get(grammar)?.source;
    if (grammar !== null && source) this.#settle(grammar, refusal(source, reason));
    this.end(failure(reason));
  }

  #settle(grammar: number, error: ServerError | null): void {
    const compilation = this.#compilations.get(grammar);
    if (!compilation) return;
    this.#compilations.delete(grammar);
    clearTimeout(compilation.timer);
    compilation.settle(error);
  }
}

function startCompilation(source: GrammarSource, timer: NodeJS.Timeout): Compilation {
  let settle: Compilation["settle"] = () => undefined;
  const done = new Promise<void>((resolve, reject) => {
    settle = (error) => (error ? reject(error) : resolve());
  });
  // Nobody may be waiting: a matcher's thread compiles again what is known to be good.
  done.catch(() => undefined);
  return { source, timer, done, settle };
}

function refusal({ param }: GrammarSource, reason: string): ServerError {
  const message = `expected a grammar that can be compiled, but ${reason}; correct or simplify it`;
  return new ServerError("invalid_value", message, { param });
}

function failure(reason: string, cause?: unknown): ServerError {
  return new ServerError("model_failed", `a grammar thread has failed: ${reason}; try again`, { cause });
}
