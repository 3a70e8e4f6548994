// Control: memory shared by one grammar thread and the model's thread. It contains a counter of wake-ups, the current
// work, and whether the grammar thread has ended. Each of the two threads creates its own Control on the same memory.
import { sleepWhile } from "./sleep.ts";

const word = { signal: 0, isAsleep: 1, current: 2, begun: 3, hasEnded: 4 };
const wordCount = 5;

export class Control {
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array<SharedArrayBuffer>;
  #isWakeDue = false;
  readonly #wakeIfDue = () => {
    if (this.#isWakeDue) this.wake();
  };

  constructor(memory = new SharedArrayBuffer(wordCount * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
  }

  /**
   * Id of the matcher or grammar that the grammar thread is working on; 0: none. If that work ends the thread, the id
   * stays.
   */
  get current(): number {
    return Atomics.load(this.#words, word.current);
  }

  /** Number of work items (opened matchers, masks and compilations) that the grammar thread has begun. */
  get begun(): number {
    return Atomics.load(this.#words, word.begun);
  }

  /**
   * Called by the grammar thread when it begins a work item. `begun` is increased before `current` is set, so the
   * model's thread never confuses this item with an earlier one.
   */
  begin(task: number): void {
    Atomics.add(this.#words, word.begun, 1);
    Atomics.store(this.#words, word.current, task);
  }

  /**
   * Called by the grammar thread when it has finished a work item, before it hands over the result. If the thread ends
   * later, this work item does not count as the cause.
   */
  done(): void {
    Atomics.store(this.#words, word.current, 0);
  }

  get hasEnded(): boolean {
    return Atomics.load(this.#words, word.hasEnded) === 1;
  }

  /** Number of times that the grammar thread has been woken. */
  get signal(): number {
    return Atomics.load(this.#words, word.signal);
  }

  end(): void {
    Atomics.store(this.#words, word.hasEnded, 1);
  }

  /**
   * Wakes the grammar thread at the end of the caller's current turn of the event loop. All tokens of a step share one
   * wake-up, because waking a sleeping thread is expensive.
   */
  wakeSoon(): void {
    if (this.#isWakeDue) return;
    this.#isWakeDue = true;
    queueMicrotask(this.#wakeIfDue);
  }

  /** Wakes the grammar thread now if a wake-up is pending. */
  hurry(): void {
    this.#wakeIfDue();
  }

  /** Wakes the grammar thread, which then checks for work. */
  wake(): void {
    this.#isWakeDue = false;
    Atomics.add(this.#words, word.signal, 1);
    if (Atomics.load(this.#words, word.isAsleep) === 1) Atomics.notify(this.#words, word.signal);
  }

  /** Called by the grammar thread: sleeps until the number of wake-ups exceeds `seen`. */
  async sleep(seen: number): Promise<void> {
    Atomics.store(this.#words, word.isAsleep, 1);
    await sleepWhile(this.#words, word.signal, seen);
    Atomics.store(this.#words, word.isAsleep, 0);
  }
}
