// Owns the bounded queue of one actor. Called by actor.ts only; a full mailbox refuses, it never drops or grows.

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
    // Drop the taken half at once: each item is moved at most once for each time it is taken.
    if (this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}
