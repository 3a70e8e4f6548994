// Requests in flight: the unanswered requests of a server. Both HTTP front ends use this class for a graceful close, which is
// complete when the last request has ended.

interface Abortable {
  abort(): void;
}

export class InFlight {
  readonly #open = new Set<Abortable>();
  #isClosing = false;
  #settle: () => void = () => {};
  /** Resolves after `close`, when no request is in flight. */
  readonly empty: Promise<void> = new Promise((resolve) => {
    this.#settle = resolve;
  });

  /** Whether `close` was called. If true, a response should close its connection. */
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

  /** Aborts all requests in flight. */
  abortAll(): void {
    for (const request of [...this.#open]) request.abort();
  }
}
