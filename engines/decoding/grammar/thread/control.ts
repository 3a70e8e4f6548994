// Control: memory shared by one grammar thread and the model's thread: wake-ups, the current work, and whether the
// thread has ended. Each side makes one on the same memory.

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

  /** The matcher or grammar that the thread works on; 0: none. It keeps its value if that work ended the thread. */
  get current(): number {
    return Atomics.load(this.#words, word.current);
  }

  /** Number of pieces of work that the thread has begun. */
  get begun(): number {
    return Atomics.load(this.#words, word.begun);
  }

  /** Thread: the counter goes first, so the model's side never takes an earlier piece of work for this one. */
  begin(task: number): void {
    Atomics.add(this.#words, word.begun, 1);
    Atomics.store(this.#words, word.current, task);
  }

  /** Thread: call it before the result is handed over, else a later end of the thread would be blamed on this work. */
  done(): void {
    Atomics.store(this.#words, word.current, 0);
  }

  get hasEnded(): boolean {
    return Atomics.load(this.#words, word.hasEnded) === 1;
  }

  /** Number of wake-ups. */
  get signal(): number {
    return Atomics.load(this.#words, word.signal);
  }

  end(): void {
    Atomics.store(this.#words, word.hasEnded, 1);
  }

  /**
   * Wakes the thread at the end of the caller's current turn: once for all tokens of a step, because waking a sleeping
   * thread costs more than anything else here.
   */
  wakeSoon(): void {
    if (this.#isWakeDue) return;
    this.#isWakeDue = true;
    queueMicrotask(this.#wakeIfDue);
  }

  /** Wakes it now if a wake-up is due. */
  hurry(): void {
    this.#wakeIfDue();
  }

  /** Makes the thread look for work. */
  wake(): void {
    this.#isWakeDue = false;
    Atomics.add(this.#words, word.signal, 1);
    if (Atomics.load(this.#words, word.isAsleep) === 1) Atomics.notify(this.#words, word.signal);
  }

  /** Sleeps until the number of wake-ups exceeds `seen`. */
  sleep(seen: number): void {
    Atomics.store(this.#words, word.isAsleep, 1);
    Atomics.wait(this.#words, word.signal, seen);
    Atomics.store(this.#words, word.isAsleep, 0);
  }
}
