// Doubly linked list with O(1) removal of any link. Used by the fair queue.

export interface Link<T> {
  readonly item: T;
  previous: Link<T> | null;
  next: Link<T> | null;
}

export class LinkedList<T> {
  #first: Link<T> | null = null;
  #last: Link<T> | null = null;

  get first(): T | undefined {
    return this.#first?.item;
  }

  get isEmpty(): boolean {
    return this.#first === null;
  }

  push(item: T): Link<T> {
    const link: Link<T> = { item, previous: this.#last, next: null };
    if (this.#last === null) this.#first = link;
    else this.#last.next = link;
    this.#last = link;
    return link;
  }

  unshift(item: T): Link<T> {
    const link: Link<T> = { item, previous: null, next: this.#first };
    if (this.#first === null) this.#last = link;
    else this.#first.previous = link;
    this.#first = link;
    return link;
  }

  /** Removes a link, which must be in this list. */
  remove(link: Link<T>): void {
    if (link.previous === null) this.#first = link.next;
    else link.previous.next = link.next;
    if (link.next === null) this.#last = link.previous;
    else link.next.previous = link.previous;
    link.previous = null;
    link.next = null;
  }

  clear(): void {
    this.#first = null;
    this.#last = null;
  }

  *backwards(): Generator<T> {
    for (let link = this.#last; link !== null; link = link.previous) yield link.item;
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let link = this.#first; link !== null; link = link.next) yield link.item;
  }
}
