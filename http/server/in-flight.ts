// Requests in flight: the unanswered requests of a server. Both HTTP front ends use this class for a graceful close, which is
// complete when the last request has ended.
import type { EdgeServer } from "./edge.ts";

/**
 * Time in ms without a request after which no client has an idle connection: the limit of idle connections is 10 s on both front
 * ends, and it is checked about once a second.
 */
const ALL_IDLE_MS = 12_000;

interface Abortable {
  abort(): void;
}

interface ServerParts {
  readonly port: number;
  /** Called when the server retires. Returns whether it accepts no more connections from now on. */
  readonly retired?: () => boolean;
  /** Called when the server closes. */
  readonly stopAccepting: () => void;
  /** Called after the last request in flight has ended. */
  readonly stop: () => void | Promise<void>;
}

export class InFlight {
  readonly #open = new Set<Abortable>();
  #isRetiring = false;
  #isClosing = false;
  /** Resolves the result of retire(); null: the server is not retired, or accepts connections. */
  #unused: (() => void) | null = null;
  #unusedTimer: NodeJS.Timeout | null = null;
  #settle: () => void = () => {};
  /** Resolves when the server is closed and no request is in flight. */
  readonly #empty: Promise<void> = new Promise((resolve) => {
    this.#settle = resolve;
  });

  /** Whether each response should close its connection: the server retires or is closed. */
  get isRetiring(): boolean {
    return this.#isRetiring;
  }

  add(request: Abortable): void {
    this.#open.add(request);
    if (this.#unusedTimer !== null) clearTimeout(this.#unusedTimer);
    this.#unusedTimer = null;
  }

  delete(request: Abortable): void {
    this.#open.delete(request);
    if (this.#open.size > 0) return;
    if (this.#isClosing) this.#settle();
    this.#waitUnused();
  }

  /** Creates the EdgeServer whose requests this object tracks. */
  server({ port, retired, stopAccepting, stop }: ServerParts): EdgeServer {
    const retire = (): Promise<void> => {
      this.#isRetiring = true;
      const stopsAccepting = retired?.() ?? false;
      return new Promise((resolve) => {
        if (!stopsAccepting) return;
        this.#unused = resolve;
        if (this.#open.size === 0) this.#waitUnused();
      });
    };
    const close = (): void => {
      if (this.#isClosing) return;
      this.#isRetiring = true;
      stopAccepting();
      this.#isClosing = true;
      if (this.#open.size === 0) this.#settle();
    };
    const forceClose = (): void => {
      close();
      for (const request of [...this.#open]) request.abort();
    };
    return { port, retire, close, closed: this.#empty.then(stop), forceClose };
  }

  #waitUnused(): void {
    const resolve = this.#unused;
    if (resolve !== null) this.#unusedTimer = setTimeout(resolve, ALL_IDLE_MS).unref();
  }
}
