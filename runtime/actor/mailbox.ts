// Mailbox: the bounded queue of one actor, a ring of its messages. A full mailbox refuses; it never drops. Used by actor.ts only.

export class Mailbox<T> {
  readonly limit: number;
  /** Grows to the limit with the first messages. */
  readonly #ring: (T | undefined)[] = [];
  #head = 0;
  #size = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get size(): number {
    return this.#size;
  }

  /** False if the mailbox is full. */
  put(item: T): boolean {
    if (this.#size === this.limit) return false;
    this.#ring[(this.#head + this.#size++) % this.limit] = item;
    return true;
  }

  /** The oldest item; undefined if the mailbox is empty. */
  take(): T | undefined {
    if (this.#size === 0) return undefined;
    const item = this.#ring[this.#head];
    this.#ring[this.#head] = undefined;
    this.#head = (this.#head + 1) % this.limit;
    this.#size--;
    return item;
  }
}
