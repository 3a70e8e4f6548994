// Host limits: limits how many pages are fetched concurrently, in total and per host, and how often requests are sent to a host.
// Clients take turns.
import { setTimeout as sleep } from "node:timers/promises";
import { orAborted } from "../../runtime/abort.ts";
import { LruMap } from "../../runtime/collections.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import { KeyedGates } from "../../runtime/queues/keyed-gates.ts";

/** Maximum number of concurrent fetches, in total and per host. */
const maxFetches = 16;
const maxFetchesOfHost = 2;
/** Minimum time in ms between the starts of two requests to one host. */
const hostIntervalMs = 100;
const maxRememberedHosts = 4096;

export class HostLimits {
  readonly #all = new Gate(maxFetches);
  readonly #hosts = new KeyedGates(maxFetchesOfHost);
  /** Earliest time of the next request to each host, in ms of performance.now(). */
  readonly #next = new LruMap<string, number>(maxRememberedHosts);

  /** Runs a fetch when the limits allow it. Throws `cancelled` after the signal is aborted. */
  async run<T>(host: string, client: string, signal: AbortSignal, fetch: () => Promise<T>): Promise<T> {
    const unlessAborted = async (): Promise<T> => {
      if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled before the page was read");
      return await fetch();
    };
    const inTurn = this.#hosts.pass(host, () => this.#all.pass(unlessAborted, client), client);
    return await orAborted(signal, inTurn);
  }

  /** Waits until the next request may be sent to the host. */
  async pace(host: string, signal: AbortSignal): Promise<void> {
    const nowMs = performance.now();
    const startMs = Math.max(nowMs, this.#next.get(host) ?? 0);
    this.#next.set(host, startMs + hostIntervalMs);
    if (startMs > nowMs) await sleep(startMs - nowMs, null, { signal });
  }
}
