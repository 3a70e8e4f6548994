// Requests in flight: requests without a complete response. Both HTTP front ends use this class for a graceful close, which
// completes when the last request has ended.
import { deferred } from "../../runtime/deferred.ts";
import type { EdgeServer } from "./edge.ts";

/**
 * Time in ms without a request after which no idle connection is left. Both front ends close connections after 10 s of idle
 * time, and check this about once a second.
 */
const ALL_IDLE_MS = 12_000;

interface Abortable {
  abort(): void;
}

interface ServerParts {
  readonly port: number;
  /** Called by retire(). Returns whether the server stops accepting connections now. */
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
  /** Resolves the promise of retire(); null if the server is not retired, or still accepts connections. */
  #unused: (() => void) | null = null;
  #unusedTimer: NodeJS.Timeout | null = null;
  /** Resolves when the server is closed and no request is in flight. */
  readonly #empty = deferred();

  /** Whether each response should close its connection, because the server is retired or closed. */
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
    if (this.#isClosing) this.#empty.resolve();
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
      if (this.#open.size === 0) this.#empty.resolve();
    };
    const forceClose = (): void => {
      close();
      for (const request of [...this.#open]) request.abort();
    };
    return { port, retire, close, closed: this.#empty.promise.then(stop), forceClose };
  }

  #waitUnused(): void {
    const resolve = this.#unused;
    if (resolve !== null) this.#unusedTimer = setTimeout(resolve, ALL_IDLE_MS).unref();
  }
}
