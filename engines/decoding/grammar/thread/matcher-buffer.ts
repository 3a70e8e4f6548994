// MatcherBuffer: memory shared by a matcher's proxy and its grammar thread. It contains a request (the token that was
// accepted) and its result (the forced tokens and the token mask). Only one thread may access the contents at a time:
// the grammar thread while `asked` and `answered` differ, the model's thread while they are equal.

/** Maximum number of forced tokens in one result. */
export const maxForced = 64;
/** Value of `token` in the first request of a matcher, before any token has been accepted. */
export const noToken = -1;

/** Number of 32-bit words before the forced tokens. */
const headWords = 7;
/** Indexes of the 32-bit words in the buffer. */
const word = {
  asked: 0,
  answered: 1,
  token: 2,
  refused: 3,
  tookUs: 4,
  workedUs: 5,
  forcedCount: 6,
  forced: headWords,
  mask: headWords + maxForced,
};

export class MatcherBuffer {
  readonly memory: SharedArrayBuffer;
  readonly forced: Int32Array;
  /** Mask of allowed tokens: one bit per token; token 0 is the lowest bit of word 0. */
  readonly mask: Int32Array;
  readonly #words: Int32Array;

  static create(vocabSize: number): MatcherBuffer {
    const words = word.mask + Math.ceil(vocabSize / 32);
    return new MatcherBuffer(new SharedArrayBuffer(words * Int32Array.BYTES_PER_ELEMENT));
  }

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
    this.forced = this.#words.subarray(word.forced, word.mask);
    this.mask = this.#words.subarray(word.mask);
  }

  /**
   * Called on the model's thread when a matcher moves to another thread. Returns a new buffer with the same result,
   * or with the same request if there is no result yet. The old thread has no access to the new buffer.
   */
  copy(isAnswered: boolean): MatcherBuffer {
    const words = this.#words.length;
    const copy = new MatcherBuffer(new SharedArrayBuffer(words * Int32Array.BYTES_PER_ELEMENT));
    if (isAnswered) copy.#words.set(this.#words);
    else copy.ask(this.token);
    return copy;
  }

  get isAnswered(): boolean {
    return Atomics.load(this.#words, word.answered) === Atomics.load(this.#words, word.asked);
  }

  get token(): number {
    return this.#words[word.token] as number;
  }

  /** Time in ms from the start of the last result to its end. */
  get tookMs(): number {
    return (this.#words[word.tookUs] as number) / 1000;
  }

  /** Processor time in ms that the grammar thread spent on the last result; at most `tookMs`. */
  get workedMs(): number {
    return (this.#words[word.workedUs] as number) / 1000;
  }

  get forcedCount(): number {
    return this.#words[word.forcedCount] as number;
  }

  /** Whether the grammar rejects the token of the last request. */
  get isRefused(): boolean {
    return this.#words[word.refused] === 1;
  }

  /** Called on the model's thread: requests the tokens that may come after `token`. */
  ask(token: number): void {
    this.#words[word.token] = token;
    Atomics.add(this.#words, word.asked, 1);
  }

  /**
   * Called on the model's thread: waits until the result is ready, the grammar thread has ended, or `limitMs` have
   * passed.
   */
  wait(limitMs: number): void {
    const answered = Atomics.load(this.#words, word.answered);
    if (answered !== Atomics.load(this.#words, word.asked)) Atomics.wait(this.#words, word.answered, answered, limitMs);
  }

  /** Called on the grammar thread: hands over `forced` and `mask` as the result. */
  answer(forcedCount: number, tookMs: number, workedMs: number): void {
    this.#words[word.forcedCount] = forcedCount;
    this.#words[word.tookUs] = Math.min(tookMs * 1000, 2 ** 31 - 1);
    this.#words[word.workedUs] = Math.min(workedMs * 1000, 2 ** 31 - 1);
    Atomics.store(this.#words, word.answered, Atomics.load(this.#words, word.asked));
    this.rouse();
  }

  /** Called on the grammar thread: reports that the grammar does not allow the token of the request. */
  refuse(tookMs: number, workedMs: number): void {
    this.#words[word.refused] = 1;
    this.answer(0, tookMs, workedMs);
  }

  /** Called on the grammar thread: ends a wait() of the model's thread. */
  rouse(): void {
    Atomics.notify(this.#words, word.answered);
  }
}
