// Control: the shared memory of one grammar thread and the model's thread, whatever the matchers do: how the thread is woken,
// what it works on, and whether it has ended. Both sides make one on the same memory.

const word = { signal: 0, isAsleep: 1, current: 2, begun: 3, hasEnded: 4 };
const wordCount = 5;

export class Control {
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array;
  #isWakeDue = false;
  readonly #wakeIfDue = () => {
    if (this.#isWakeDue) this.wake();
  };

  constructor(memory = new SharedArrayBuffer(wordCount * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
  }

  /** The matcher or grammar that the thread works on; 0 for none. It keeps its value where that work has ended the thread. */
  get current(): number {
    return Atomics.load(this.#words, word.current);
  }

  /** Counts the pieces of work that the thread has begun. */
  get begun(): number {
    return Atomics.load(this.#words, word.begun);
  }

  /** Thread: counted first, so that nobody takes an earlier piece of work for this one. */
  begin(task: number): void {
    Atomics.add(this.#words, word.begun, 1);
    Atomics.store(this.#words, word.current, task);
  }

  /** Thread: call it before the result is handed over; else a later end of the thread would be blamed on this work. */
  done(): void {
    Atomics.store(this.#words, word.current, 0);
  }

  get hasEnded(): boolean {
    return Atomics.load(this.#words, word.hasEnded) === 1;
  }

  /** Counts the wake-ups. */
  get signal(): number {
    return Atomics.load(this.#words, word.signal);
  }

  end(): void {
    Atomics.store(this.#words, word.hasEnded, 1);
  }

  /**
   * Wakes the thread when the caller has done what it is at: once for all tokens of a step, as waking one that sleeps costs
   * more than anything else here.
   */
  wakeSoon(): void {
    if (this.#isWakeDue) return;
    this.#isWakeDue = true;
    queueMicrotask(this.#wakeIfDue);
  }

  /** Wakes it now if it is to be woken soon. */
  hurry(): void {
    this.#wakeIfDue();
  }

  /** Lets the thread look for work. */
  wake(): void {
    this.#isWakeDue = false;
    Atomics.add(this.#words, word.signal, 1);
    if (Atomics.load(this.#words, word.isAsleep) === 1) Atomics.notify(this.#words, word.signal);
  }

  /** Sleeps until there is a wake-up after the one counted `seen`. */
  sleep(seen: number): void {
    Atomics.store(this.#words, word.isAsleep, 1);
    Atomics.wait(this.#words, word.signal, seen);
    Atomics.store(this.#words, word.isAsleep, 0);
  }
}
