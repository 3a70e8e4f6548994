// Turn lock: a lock for two threads of a process, called sides 0 and 1. The threads alternate, so that each waits for
// at most one turn of the other thread. Used by a model's thread and its adapter loading thread, which both access
// llama.cpp's list of adapters. Not reentrant.

export type Side = 0 | 1;

/**
 * Index of the word with the number of the side that must wait if both sides request the lock. The words with index 0
 * and 1 belong to sides 0 and 1: a word is 1 while its side has the lock or waits for it.
 */
const waitingSide = 2;
const words = 3;

export class TurnLock {
  /** Shared memory of the lock. The other thread creates its own TurnLock from it. */
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

  /** Tries to acquire the lock. Returns false if the other side has the lock or is about to acquire it. */
  tryAcquire(): boolean {
    this.#ask();
    if (!this.#mustWait()) return true;
    this.release();
    return false;
  }

  release(): void {
    Atomics.store(this.#words, this.#own, 0);
    // The other side waits until the word `waitingSide` changes. If its wait has not started yet, this change prevents
    // the wait.
    Atomics.store(this.#words, waitingSide, this.#own);
    Atomics.notify(this.#words, waitingSide);
  }

  /**
   * Requests the lock. If both sides request the lock, the later side (this side) must wait. The other side may already
   * be waiting for a change of the word `waitingSide`, so it is notified.
   */
  #ask(): void {
    Atomics.store(this.#words, this.#own, 1);
    Atomics.store(this.#words, waitingSide, this.#own);
    Atomics.notify(this.#words, waitingSide);
  }

  #mustWait(): boolean {
    return Atomics.load(this.#words, this.#other) === 1 && Atomics.load(this.#words, waitingSide) === this.#own;
  }
}
