// Requests in flight: the unanswered requests of a server. Both HTTP front ends use this class for a graceful close, which is
// complete when the last request has ended.
import type { EdgeServer } from "./edge.ts";

interface Abortable {
  abort(): void;
}

export class InFlight {
  readonly #open = new Set<Abortable>();
  #isClosing = false;
  #settle: () => void = () => {};
  /** Resolves when the server is closed and no request is in flight. */
  readonly #empty: Promise<void> = new Promise((resolve) => {
    this.#settle = resolve;
  });

  /** Whether the server is closed. If true, a response should close its connection. */
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

  /**
   * Creates the EdgeServer whose requests this object tracks. `stopAccepting` is called when the server closes, `stop` after
   * the last request in flight has ended.
   */
  server(port: number, stopAccepting: () => void, stop: () => void | Promise<void>): EdgeServer {
    const close = (): void => {
      if (this.#isClosing) return;
      stopAccepting();
      this.#isClosing = true;
      if (this.#open.size === 0) this.#settle();
    };
    const forceClose = (): void => {
      close();
      for (const request of [...this.#open]) request.abort();
    };
    return { port, close, closed: this.#empty.then(stop), forceClose };
  }
}
