// Mailbox: the bounded queue of one actor. A full mailbox refuses new messages. Used by actor.ts only.

export class Mailbox<T> {
  readonly limit: number;
  #items: T[] = [];
  #head = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get size(): number {
    return this.#items.length - this.#head;
  }

  /** False if the mailbox is full. */
  put(item: T): boolean {
    if (this.size >= this.limit) return false;
    this.#items.push(item);
    return true;
  }

  /** The oldest item, or undefined. */
  take(): T | undefined {
    if (this.size === 0) return undefined;
    const item = this.#items[this.#head] as T;
    this.#items[this.#head] = undefined as T;
    this.#head++;
    // Removes the taken half at once: amortised, each take moves at most one item.
    if (this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}
