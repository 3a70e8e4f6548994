// Owns the set of requests a server has not answered yet, and so the meaning of an orderly close: it has closed when
// nobody new may come and the last request has ended. Used by both edges.

interface Abortable {
  abort(): void;
}

export class InFlight {
  readonly #open = new Set<Abortable>();
  #isClosing = false;
  #settle: () => void = () => {};
  /** Settles when `close` was called and no request is left. */
  readonly empty: Promise<void> = new Promise((resolve) => {
    this.#settle = resolve;
  });

  /** When true, an answer should end its connection. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  add(request: Abortable): void {
    this.#open.add(request);
  }

  delete(request: Abortable): void {
    this.#open.delete(request);
    if (this.#isClosing && this.#open.size === 0) this.#settle();
  }

  close(): void {
    this.#isClosing = true;
    if (this.#open.size === 0) this.#settle();
  }

  /** Cuts every request that is left. */
  abortAll(): void {
    for (const request of [...this.#open]) request.abort();
  }
}
