// Owns the model's side of one matcher: what the step loop calls. The matcher itself works on a grammar thread and can be
// made again on another one, from the tokens it has seen, when its thread ends for a reason that is not its own.
import { ServerError } from "../../runtime/errors.ts";
import type { Allowed, Matcher } from "./matcher.ts";
import { noToken, Sheet } from "./sheet.ts";
import type { GrammarThread, NumberedSource } from "./thread.ts";

/** A thread that has to start or compile before it can answer may take so many times longer. */
const busyFactor = 20;
/** How long a wait goes on before it looks whether the thread still lives. */
const livenessMs = 100;
/** Threads that may end under a matcher before it is held to be the reason. */
const maxMoves = 2;

/** The matcher's owner: it replaces a thread that has ended, or does not answer. */
export interface MatcherKeeper {
  readonly vocabSize: number;
  /** Longest wait for one answer. */
  readonly answerLimitMs: number;
  /** Ends the thread and moves or fails each of its matchers. */
  replace(thread: GrammarThread): void;
  closed(matcher: LiveMatcher): void;
}

export class LiveMatcher implements Matcher {
  readonly id: number;
  readonly grammar: NumberedSource;
  readonly sheet: Sheet;
  readonly #keeper: MatcherKeeper;
  #thread: GrammarThread;
  /** Tokens whose answers have been passed on, forced ones too. */
  readonly #history: number[] = [];
  #moves = 0;
  #failure: ServerError | null = null;
  #isClosed = false;
  readonly #allowed: { forced: Int32Array; readonly mask: Int32Array };

  constructor(id: number, grammar: NumberedSource, thread: GrammarThread, keeper: MatcherKeeper) {
    this.id = id;
    this.grammar = grammar;
    this.sheet = Sheet.create(keeper.vocabSize);
    this.#keeper = keeper;
    this.#thread = thread;
    this.#allowed = { forced: none, mask: this.sheet.mask };
    this.sheet.ask(noToken);
    thread.open(this, none);
  }

  get isReady(): boolean {
    return this.#failure !== null || this.sheet.isAnswered || !this.#thread.isCompiling;
  }

  allowed(): Allowed {
    this.#awaitAnswer();
    const { forcedCount, forced } = this.sheet;
    this.#allowed.forced = forcedCount === 0 ? none : forced.subarray(0, forcedCount);
    return this.#allowed;
  }

  accept(token: number): void {
    this.#awaitAnswer();
    this.#passOn(this.#history);
    this.sheet.ask(token);
    this.#thread.control.wakeSoon();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#failure === null) this.#thread.close(this);
    this.#keeper.closed(this);
  }

  /** Its thread has ended: it goes on where it was, on another one. */
  move(thread: GrammarThread): void {
    const history = [...this.#history];
    if (this.sheet.isAnswered) this.#passOn(history);
    this.#moves++;
    this.#thread = thread;
    thread.open(this, Int32Array.from(history));
  }

  get canMove(): boolean {
    return this.#moves < maxMoves;
  }

  fail(failure: ServerError): void {
    this.#failure ??= failure;
  }

  /** Appends the token of the last answer, and those it forced. */
  #passOn(history: number[]): void {
    const { token, forced, forcedCount } = this.sheet;
    if (token !== noToken) history.push(token);
    for (let i = 0; i < forcedCount; i++) history.push(forced[i] as number);
  }

  #awaitAnswer(): void {
    if (!this.sheet.isAnswered) this.#waitForAnswer();
    if (this.#failure !== null) throw this.#failure;
    if (!this.sheet.isRefused) return;
    const message = `the grammar does not allow token ${this.sheet.token} where it was given; try again`;
    throw new ServerError("model_failed", message);
  }

  /** The thread cannot be heard of here, as the event loop stands still: it is looked at. */
  #waitForAnswer(): void {
    let started = performance.now();
    this.#thread.control.hurry();
    while (this.#failure === null && !this.sheet.isAnswered) {
      this.sheet.wait(livenessMs);
      if (this.sheet.isAnswered) return;
      const limitMs = this.#keeper.answerLimitMs * (this.#thread.isCompiling ? busyFactor : 1);
      if (!this.#thread.control.hasEnded && performance.now() - started < limitMs) continue;
      this.#keeper.replace(this.#thread);
      started = performance.now();
    }
  }
}

const none = new Int32Array(0);
