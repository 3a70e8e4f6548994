// The model's side of one matcher: what the step loop calls. The matcher itself works on a grammar thread and can be made
// again on another one, from the tokens it has seen.
import { performance } from "node:perf_hooks";
import { ServerError } from "../../../runtime/errors.ts";
import type { Allowed, Matcher } from "./matcher.ts";
import { Pace } from "./pace.ts";
import { MatcherBuffer, noToken } from "./thread/matcher-buffer.ts";
import type { NumberedSource } from "./thread/messages.ts";

/** A grammar that has been compiled once. */
export interface ProvedGrammar extends NumberedSource {
  /** Of the source. */
  readonly digest: string;
  /** How long that took, in processor time where the system tells. */
  readonly compileMs: number;
}

/** The owner of the threads. */
export interface MatcherKeeper {
  readonly vocabSize: number;
  /** An answer has been used; `pace` counts it. */
  answered(matcher: MatcherProxy): void;
  closed(matcher: MatcherProxy): void;
}

/** What a matcher uses of its grammar thread. */
export interface MatcherThread {
  readonly isServing: boolean;
  readonly control: { hurry(): void; wakeSoon(): void };
  open(matcher: MatcherProxy, history: Int32Array): void;
  close(matcher: MatcherProxy): void;
}

export class MatcherProxy implements Matcher {
  readonly id: number;
  readonly grammar: ProvedGrammar;
  readonly pace = new Pace(performance.now());
  /** It takes so much time that its thread serves none that are quick. */
  isSlow = false;
  /** Threads that have ended under it, nobody knows why. */
  losses = 0;
  readonly #keeper: MatcherKeeper;
  #sheet: MatcherBuffer;
  #thread: MatcherThread;
  /** Tokens whose answers have been used, forced ones too. */
  readonly #history: number[] = [];
  #failure: ServerError | null = null;
  #isClosed = false;
  readonly #allowed: { forced: Int32Array; mask: Int32Array };

  constructor(id: number, grammar: ProvedGrammar, thread: MatcherThread, keeper: MatcherKeeper) {
    this.id = id;
    this.grammar = grammar;
    this.#keeper = keeper;
    this.#thread = thread;
    this.#sheet = MatcherBuffer.create(keeper.vocabSize);
    this.#allowed = { forced: none, mask: this.#sheet.mask };
    this.#sheet.ask(noToken);
    thread.open(this, none);
  }

  get param(): string | undefined {
    return this.grammar.source.param;
  }

  get sheet(): MatcherBuffer {
    return this.#sheet;
  }

  get isAnswered(): boolean {
    return this.#failure !== null || this.#sheet.isAnswered;
  }

  get isReady(): boolean {
    return this.isAnswered || (this.pace.isInTime && this.#thread.isServing);
  }

  wait(limitMs: number): boolean {
    if (this.isAnswered) return true;
    if (limitMs > 0) {
      this.#thread.control.hurry();
      this.#sheet.wait(limitMs);
    }
    if (this.isAnswered) return true;
    this.pace.miss(performance.now());
    return false;
  }

  allowed(): Allowed {
    this.#checkAnswer();
    const { forcedCount, forced, mask } = this.#sheet;
    this.#allowed.forced = forcedCount === 0 ? none : forced.subarray(0, forcedCount);
    this.#allowed.mask = mask;
    return this.#allowed;
  }

  accept(token: number): void {
    this.#checkAnswer();
    const { tookMs } = this.#sheet;
    this.#passOn(this.#history);
    this.#sheet.ask(token);
    this.#thread.control.wakeSoon();
    this.pace.ask(tookMs, performance.now());
    this.#keeper.answered(this);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#thread.close(this);
    this.#keeper.closed(this);
  }

  /** It goes on where it was, on another thread. Memory of its own, as the old thread may be writing an answer. */
  move(thread: MatcherThread): void {
    const history = [...this.#history];
    const { isAnswered } = this.#sheet;
    if (isAnswered) this.#passOn(history);
    this.#sheet = this.#sheet.copy(isAnswered);
    this.#thread.close(this);
    this.#thread = thread;
    thread.open(this, Int32Array.from(history));
  }

  fail(failure: ServerError): void {
    this.#failure ??= failure;
  }

  /** Appends the token of the last answer, and those it forced. */
  #passOn(history: number[]): void {
    const { token, forced, forcedCount } = this.#sheet;
    if (token !== noToken) history.push(token);
    for (let i = 0; i < forcedCount; i++) history.push(forced[i] as number);
  }

  #checkAnswer(): void {
    if (this.#failure !== null) throw this.#failure;
    assertAnswered(this.#sheet);
    if (!this.#sheet.isRefused) return;
    const message = `the grammar does not allow token ${this.#sheet.token} where it was given; try again`;
    throw new ServerError("model_failed", message);
  }
}

const none = new Int32Array(0);

function assertAnswered(sheet: MatcherBuffer): void {
  if (!sheet.isAnswered) throw new Error("a grammar's answer is used that is not there");
}
