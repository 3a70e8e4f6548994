// Stream ends with credit-based flow control: a writer, and a reader with a buffer. stream.ts creates them and sends their
// messages. At most twice `window` items are in transit or buffered.
import assert from "node:assert";
import { ServerError } from "../errors.ts";

export interface WriterHooks {
  /** Called at most once, when the reader has cancelled or is gone. */
  onCancel(): void;
  /** Called when the window has room again after write() returned false. */
  onDrain(): void;
}

export interface StreamWriter<T> {
  /**
   * Sends one item. Returns false once `window` items are unconsumed; the caller should then wait for onDrain. The item is
   * still accepted. When twice `window` items are unconsumed, further items are rejected with `reader_stalled`. Items after
   * end() or onCancel are dropped.
   */
  write(item: T): boolean;
  /** Ends the stream. The reader still yields its buffered items. */
  end(): void;
}

/**
 * The reading end, for a single consumer. Each iteration yields all buffered items. Leaving the loop early cancels the stream.
 */
export interface StreamReader<T> extends AsyncIterable<readonly T[]> {
  /** Tells the writer to stop, and ends the iteration. */
  cancel(): void;
}

/** Messages that one end sends to the other. */
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
  /** Number of items that were sent and for which no credit has been received yet. */
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
  /** Number of items that the consumer has received and for which no credit was sent yet. */
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

  /** Called by the JavaScript engine when a `for await` loop over the reader is left early. */
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

  /** Ends the stream with an error. Buffered items are still yielded; then the iteration throws. */
  failed(error: Error): void {
    this.#isOver = true;
    const waiter = this.#takeWaiter();
    if (waiter === null) this.#error = error;
    else waiter.reject(error);
  }

  /**
   * Sends credit to the writer in batches. Called when the consumer requests the next items, because the consumer has then
   * processed the previous items.
   */
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
