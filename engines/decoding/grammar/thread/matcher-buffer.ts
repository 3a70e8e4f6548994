// MatcherBuffer: memory shared by a matcher's proxy and its grammar thread: the token of the question, and the answer.
// One side owns it at a time: the thread while `asked` and `answered` differ, the model's thread while they agree.

/** Most tokens that one answer forces. */
export const maxForced = 64;
/** In place of a token in the first question. */
export const noToken = -1;

/** Words of a buffer. */
const word = { asked: 0, answered: 1, token: 2, refused: 3, tookUs: 4, forcedCount: 5, forced: 6, mask: 6 + maxForced };

export class MatcherBuffer {
  readonly memory: SharedArrayBuffer;
  readonly forced: Int32Array;
  /** A bit for each token, the lowest of word 0 first. */
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

  /** Model's side: the same answer, or question, in new memory that this one's thread never writes to. */
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

  /** Time that the thread worked on the last answer, in ms. */
  get tookMs(): number {
    return (this.#words[word.tookUs] as number) / 1000;
  }

  get forcedCount(): number {
    return this.#words[word.forcedCount] as number;
  }

  /** Whether the grammar forbids the token of the question. */
  get isRefused(): boolean {
    return this.#words[word.refused] === 1;
  }

  /** Model's side. */
  ask(token: number): void {
    this.#words[word.token] = token;
    Atomics.add(this.#words, word.asked, 1);
  }

  /** Model's side: returns when the answer has come, when the thread has ended, or after `limitMs`. */
  wait(limitMs: number): void {
    const answered = Atomics.load(this.#words, word.answered);
    if (answered !== Atomics.load(this.#words, word.asked)) Atomics.wait(this.#words, word.answered, answered, limitMs);
  }

  /** Grammar thread: hands over the contents of `forced` and `mask`. */
  answer(forcedCount: number, tookMs: number): void {
    this.#words[word.forcedCount] = forcedCount;
    this.#words[word.tookUs] = Math.min(tookMs * 1000, 2 ** 31 - 1);
    Atomics.store(this.#words, word.answered, Atomics.load(this.#words, word.asked));
    this.rouse();
  }

  /** Grammar thread. */
  refuse(tookMs: number): void {
    this.#words[word.refused] = 1;
    this.answer(0, tookMs);
  }

  /** Grammar thread: ends a wait. */
  rouse(): void {
    Atomics.notify(this.#words, word.answered);
  }
}
