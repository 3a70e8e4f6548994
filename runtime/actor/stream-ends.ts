// Stream ends: a writer with credit and a reader with a buffer. Made by stream.ts, which sends their entries. At most twice the
// window of items are in transit or buffered.
import assert from "node:assert";
import { ServerError } from "../errors.ts";

export interface WriterHooks {
  /** The reader has cancelled or is gone. Called at most once. */
  onCancel(): void;
  /** There is room again after a write() that returned false. */
  onDrain(): void;
}

export interface StreamWriter<T> {
  /**
   * Sends one item. False once `window` items are unconsumed: wait for onDrain. The item is still accepted; from twice the
   * window on it is refused with `reader_stalled`. Items after end() or onCancel are dropped.
   */
  write(item: T): boolean;
  /** No more items; the reader still yields its buffer. */
  end(): void;
}

/** For one consumer. Each iteration yields all buffered items; leaving the loop early cancels. */
export interface StreamReader<T> extends AsyncIterable<readonly T[]> {
  /** Tells the writer to stop and ends the iteration. */
  cancel(): void;
}

/** Messages of an end to its counterpart. */
export interface WriterPost<T> {
  item(item: T): void;
  end(): void;
}
export interface ReaderPost {
  credit(count: number): void;
  cancel(): void;
}

export class Writer<T> implements StreamWriter<T> {
  readonly #window: number;
  readonly #hooks: WriterHooks;
  readonly #post: WriterPost<T>;
  /** Items sent without credit received for them. */
  #outstanding = 0;
  #isFull = false;
  #isOpen = true;

  constructor(window: number, hooks: WriterHooks, post: WriterPost<T>) {
    this.#window = window;
    this.#hooks = hooks;
    this.#post = post;
  }

  write(item: T): boolean {
    if (!this.#isOpen) return false;
    if (this.#outstanding >= 2 * this.#window) {
      const text = `the reader has left ${this.#outstanding} items; a stream holds twice its window of ${this.#window}`;
      throw new ServerError("reader_stalled", text);
    }
    this.#outstanding++;
    this.#isFull = this.#outstanding >= this.#window;
    this.#post.item(item);
    return !this.#isFull;
  }

  end(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#post.end();
  }

  credit(count: number): void {
    this.#outstanding -= count;
    if (!this.#isFull || this.#outstanding >= this.#window) return;
    this.#isFull = false;
    this.#hooks.onDrain();
  }

  cancelled(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#hooks.onCancel();
  }
}

type Waiter<T> = {
  readonly resolve: (result: IteratorResult<readonly T[], undefined>) => void;
  readonly reject: (error: Error) => void;
};

const done = { done: true, value: undefined } as const;

export class Reader<T> implements StreamReader<T>, AsyncIterator<readonly T[], undefined> {
  readonly #creditBatch: number;
  readonly #post: ReaderPost;
  #items: T[] = [];
  /** Items of the current batch, and of earlier ones whose credit is not sent yet. */
  #handedOut = 0;
  #isOver = false;
  #error: Error | null = null;
  #waiter: Waiter<T> | null = null;

  constructor(window: number, post: ReaderPost) {
    this.#creditBatch = Math.max(1, Math.floor(window / 2));
    this.#post = post;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<readonly T[], undefined>> {
    assert(this.#waiter === null, "a stream has one consumer, and it is already waiting");
    this.#returnCredit();
    if (this.#items.length > 0) return Promise.resolve({ done: false, value: this.#takeItems() });
    if (this.#error !== null) return Promise.reject(this.#error);
    if (this.#isOver) return Promise.resolve(done);
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject };
    });
  }

  /** Called when a loop is left early. */
  return(): Promise<IteratorResult<readonly T[], undefined>> {
    this.cancel();
    return Promise.resolve(done);
  }

  cancel(): void {
    this.#items = [];
    this.#error = null;
    if (this.#isOver) return;
    this.#isOver = true;
    this.#post.cancel();
    this.#takeWaiter()?.resolve(done);
  }

  arrived(items: readonly T[]): void {
    for (const item of items) this.#items.push(item);
    this.#takeWaiter()?.resolve({ done: false, value: this.#takeItems() });
  }

  ended(): void {
    this.#isOver = true;
    this.#takeWaiter()?.resolve(done);
  }

  /** Buffered items are still yielded, then the iteration throws. */
  failed(error: Error): void {
    this.#isOver = true;
    const waiter = this.#takeWaiter();
    if (waiter === null) this.#error = error;
    else waiter.reject(error);
  }

  /** Credit is returned in batches, when the consumer asks for the next items: it has finished the ones before. */
  #returnCredit(): void {
    if (this.#isOver || this.#handedOut < this.#creditBatch) return;
    this.#post.credit(this.#handedOut);
    this.#handedOut = 0;
  }

  #takeItems(): readonly T[] {
    const items = this.#items;
    this.#items = [];
    this.#handedOut += items.length;
    return items;
  }

  #takeWaiter(): Waiter<T> | null {
    const waiter = this.#waiter;
    this.#waiter = null;
    return waiter;
  }
}
