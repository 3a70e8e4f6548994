// MatcherProxy: the step loop's handle to one matcher. The matcher itself runs on a grammar thread. It can be moved
// to another thread, which then replays the earlier tokens of the sequence.
import { performance } from "node:perf_hooks";
import { ServerError } from "../../../runtime/errors.ts";
import type { Allowed, Matcher } from "./matcher.ts";
import { Pace } from "./pace.ts";
import { MatcherBuffer, noToken } from "./thread/matcher-buffer.ts";
import type { NumberedSource } from "./thread/messages.ts";

/** A grammar that has been compiled successfully at least once. */
export interface ProvedGrammar extends NumberedSource {
  /** Digest of the grammar's source. */
  readonly digest: string;
  /** Compile time: processor time if the operating system reports it, else wall-clock time. */
  readonly compileMs: number;
}

/** The part of the grammar host (host.ts) that a matcher uses. */
export interface MatcherKeeper {
  readonly vocabSize: number;
  /**
   * Called when the token mask of a matcher has been used. The time of that mask is already included in the matcher's
   * `pace` (time statistics).
   */
  answered(matcher: MatcherProxy): void;
  closed(matcher: MatcherProxy): void;
}

/** The methods of a grammar thread that a matcher uses. */
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
  /** Whether the matcher is too slow to share a thread with quick matchers. */
  isSlow = false;
  /** Number of threads that ended for an unknown reason while they ran this matcher. */
  losses = 0;
  readonly #keeper: MatcherKeeper;
  #buffer: MatcherBuffer;
  #thread: MatcherThread;
  /** Tokens that the matcher has processed and whose masks have been used, including forced tokens. */
  readonly #history: number[] = [];
  #failure: ServerError | null = null;
  #isClosed = false;
  readonly #allowed: { forced: Int32Array; mask: Int32Array };

  constructor(id: number, grammar: ProvedGrammar, thread: MatcherThread, keeper: MatcherKeeper) {
    this.id = id;
    this.grammar = grammar;
    this.#keeper = keeper;
    this.#thread = thread;
    this.#buffer = MatcherBuffer.create(keeper.vocabSize);
    this.#allowed = { forced: none, mask: this.#buffer.mask };
    this.#buffer.ask(noToken);
    thread.open(this, none);
  }

  get param(): string | undefined {
    return this.grammar.source.param;
  }

  get buffer(): MatcherBuffer {
    return this.#buffer;
  }

  get isAnswered(): boolean {
    return this.#failure !== null || this.#buffer.isAnswered;
  }

  get isReady(): boolean {
    return this.isAnswered || (this.pace.isInTime && this.#thread.isServing);
  }

  wait(limitMs: number): boolean {
    if (this.isAnswered) return true;
    if (limitMs > 0) {
      this.#thread.control.hurry();
      this.#buffer.wait(limitMs);
    }
    if (this.isAnswered) return true;
    this.pace.miss(performance.now());
    return false;
  }

  allowed(): Allowed {
    this.#checkAnswer();
    const { forcedCount, forced, mask } = this.#buffer;
    this.#allowed.forced = forcedCount === 0 ? none : forced.subarray(0, forcedCount);
    this.#allowed.mask = mask;
    return this.#allowed;
  }

  accept(token: number): void {
    this.#checkAnswer();
    const { tookMs, workedMs } = this.#buffer;
    this.#passOn(this.#history);
    this.#buffer.ask(token);
    this.#thread.control.wakeSoon();
    this.pace.ask(tookMs, workedMs, performance.now());
    this.#keeper.answered(this);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#thread.close(this);
    this.#keeper.closed(this);
  }

  /**
   * Moves the matcher to another thread. The matcher gets a new buffer, because the old thread may
   * still write to the old buffer.
   */
  move(thread: MatcherThread): void {
    const history = [...this.#history];
    const { isAnswered } = this.#buffer;
    if (isAnswered) this.#passOn(history);
    this.#buffer = this.#buffer.copy(isAnswered);
    this.#thread.close(this);
    this.#thread = thread;
    thread.open(this, Int32Array.from(history));
  }

  fail(failure: ServerError): void {
    this.#failure ??= failure;
  }

  /** Appends the last accepted token, and the tokens that the grammar forced after it, to `history`. */
  #passOn(history: number[]): void {
    const { token, forced, forcedCount } = this.#buffer;
    if (token !== noToken) history.push(token);
    for (let i = 0; i < forcedCount; i++) history.push(forced[i] as number);
  }

  #checkAnswer(): void {
    if (this.#failure !== null) throw this.#failure;
    assertAnswered(this.#buffer);
    if (!this.#buffer.isRefused) return;
    const message = `the grammar does not allow token ${this.#buffer.token} here; try again`;
    throw new ServerError("model_failed", message);
  }
}

const none = new Int32Array(0);

function assertAnswered(buffer: MatcherBuffer): void {
  if (!buffer.isAnswered) throw new Error("the answer of a grammar is used before it has come");
}
