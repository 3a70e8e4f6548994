// Mailbox: the bounded message queue of one actor, stored in a ring buffer. A full mailbox rejects new messages; it never drops
// old ones. Used only by actor.ts.

export class Mailbox<T> {
  readonly limit: number;
  /** The ring grows with the first messages, up to the limit. */
  readonly #ring: (T | undefined)[] = [];
  #head = 0;
  #size = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get size(): number {
    return this.#size;
  }

  /** Adds an item. Returns false if the mailbox is full. */
  put(item: T): boolean {
    if (this.#size === this.limit) return false;
    this.#ring[(this.#head + this.#size++) % this.limit] = item;
    return true;
  }

  /** Removes and returns the oldest item; undefined if the mailbox is empty. */
  take(): T | undefined {
    if (this.#size === 0) return undefined;
    const item = this.#ring[this.#head];
    this.#ring[this.#head] = undefined;
    this.#head = (this.#head + 1) % this.limit;
    this.#size--;
    return item;
  }
}
