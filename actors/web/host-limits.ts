// Host limits: how many pages are fetched at once, in all and of one host, and how often a host is asked. Clients take turns.
import { setTimeout as sleep } from "node:timers/promises";
import { LruMap } from "../../runtime/collections.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";

/** Maximum number of fetches at once, in all and of one host. */
const maxFetches = 16;
const maxFetchesOfHost = 2;
/** Minimum time in ms between the starts of two requests to one host. */
const hostIntervalMs = 100;
const maxRememberedHosts = 4096;

interface HostGate {
  readonly gate: Gate;
  /** Number of fetches that run or wait. */
  users: number;
}

export class HostLimits {
  readonly #all = new Gate(maxFetches);
  readonly #hosts = new Map<string, HostGate>();
  /** Earliest time of the next request by host. */
  readonly #next = new LruMap<string, number>(maxRememberedHosts);

  /** Runs a fetch when the limits allow it. Throws cancelled after the signal is aborted. */
  async run<T>(host: string, client: string, signal: AbortSignal, fetch: () => Promise<T>): Promise<T> {
    const entry = this.#hosts.get(host) ?? { gate: new Gate(maxFetchesOfHost), users: 0 };
    this.#hosts.set(host, entry);
    entry.users++;
    const inTurn = entry.gate.pass(() => this.#all.pass(() => unlessAborted(signal, fetch), client), client);
    // The place in the queue is left when its turn comes, so the entry must stay until then.
    const left = inTurn.finally(() => this.#leave(host, entry));
    left.catch(() => {});
    return await orAborted(signal, left);
  }

  /** Waits until the host may be asked again. */
  async pace(host: string, signal: AbortSignal): Promise<void> {
    const nowMs = performance.now();
    const startMs = Math.max(nowMs, this.#next.get(host) ?? 0);
    this.#next.set(host, startMs + hostIntervalMs);
    if (startMs > nowMs) await sleep(startMs - nowMs, null, { signal });
  }

  #leave(host: string, entry: HostGate): void {
    if (--entry.users === 0) this.#hosts.delete(host);
  }
}

async function unlessAborted<T>(signal: AbortSignal, fetch: () => Promise<T>): Promise<T> {
  if (signal.aborted) throw cancelled();
  return await fetch();
}

async function orAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  let abort = (): void => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = () => reject(cancelled());
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled before the page was read");
}
