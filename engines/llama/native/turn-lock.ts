// Turn lock: two threads of a process alternate, so that neither waits for more than one turn of the other. For a
// model's thread and its adapter loading thread, which both use llama.cpp's list of adapters. Not reentrant.

export type Side = 0 | 1;

/** Word `side` is 1 while that side has the lock or waits for it. This word names the waiting side if both are 1. */
const waitingSide = 2;
const words = 3;

export class TurnLock {
  /** Memory for the other side's instance. */
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array;
  readonly #own: Side;
  readonly #other: Side;

  constructor(own: Side, memory = new SharedArrayBuffer(words * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
    this.#own = own;
    this.#other = own === 0 ? 1 : 0;
  }

  acquire(): void {
    this.#ask();
    while (this.#mustWait()) Atomics.wait(this.#words, waitingSide, this.#own);
  }

  /** Returns false if the other side has the lock, or is about to take it. */
  tryAcquire(): boolean {
    this.#ask();
    if (!this.#mustWait()) return true;
    this.release();
    return false;
  }

  release(): void {
    Atomics.store(this.#words, this.#own, 0);
    // A side that is about to wait for a change of this word sees one.
    Atomics.store(this.#words, waitingSide, this.#own);
    Atomics.notify(this.#words, waitingSide);
  }

  /** Lets the other side go first if it asked before: it may be waiting only for this side to write `waitingSide`. */
  #ask(): void {
    Atomics.store(this.#words, this.#own, 1);
    Atomics.store(this.#words, waitingSide, this.#own);
    Atomics.notify(this.#words, waitingSide);
  }

  #mustWait(): boolean {
    return Atomics.load(this.#words, this.#other) === 1 && Atomics.load(this.#words, waitingSide) === this.#own;
  }
}
