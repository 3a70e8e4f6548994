// Requests in flight: the requests a server has not answered yet. Graceful close: after `close`, it is complete when the last
// request has ended. Used by both edges.

interface Abortable {
  abort(): void;
}

export class InFlight {
  readonly #open = new Set<Abortable>();
  #isClosing = false;
  #settle: () => void = () => {};
  /** Settles after `close`, when no request is left. */
  readonly empty: Promise<void> = new Promise((resolve) => {
    this.#settle = resolve;
  });

  /** If true, an answer should close its connection. */
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

  /** Aborts the remaining requests. */
  abortAll(): void {
    for (const request of [...this.#open]) request.abort();
  }
}
