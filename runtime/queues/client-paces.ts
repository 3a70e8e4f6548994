// Client paces: classifies clients by the durations of their recent tasks. Used by queues in which tasks of one client may
// delay the tasks of other clients. The number of remembered clients is bounded; the least recently seen ones are dropped
// first.
import { LruMap } from "../collections.ts";
import type { FairQueue } from "./fair-queue.ts";

/** Time in ms for which a client counts as slow after a slow task. */
const slowForMs = 60_000;
/** Time in ms for which a client counts as trusted after its last short task. */
const trustedForMs = 600_000;
/**
 * Time in ms for which all tasks of a client must have been short before it is trusted. So the first
 * requests of a burst are not trusted.
 */
const trustAfterMs = 2000;
/** Time in ms until a client can be trusted again after a task that was not short. */
const trustAgainMs = 10_000;
/** Time in ms for which a worker is kept free for trusted clients, after one of them has finished a task. */
const presentForMs = 10_000;
/**
 * A trusted client is long-trusted if all its tasks have been short for at least this fraction of the longest such time among
 * the recently active trusted clients.
 */
const longTrustShare = 0.5;
const maxRemembered = 1024;

/** Period in which all tasks of a client were short. Times are from performance.now(). */
interface ShortSpan {
  /**
   * Start of the period in ms. After a task that was not short, the start is set to a time in the future, which delays trust.
   */
  readonly sinceMs: number;
  readonly lastMs: number;
}

export class ClientPaces {
  readonly #quickMs: number;
  /** Time of the last slow task by client. */
  readonly #slow = new LruMap<string, number>(maxRemembered);
  /**
   * Periods of trusted clients and of other clients. There are two maps, so that new clients do not displace trusted clients.
   */
  readonly #trusted = new LruMap<string, ShortSpan>(maxRemembered);
  readonly #others = new LruMap<string, ShortSpan>(maxRemembered);
  #lastTrustedMs = Number.NEGATIVE_INFINITY;

  /** Tasks that take more than `quickMs` are slow. Tasks that take less than half of `quickMs` are short. */
  constructor(quickMs: number) {
    this.#quickMs = quickMs;
  }

  /** Records that a task of a client is slow. */
  slow(client: string): void {
    this.#trusted.delete(client);
    this.#others.delete(client);
    this.#slow.set(client, performance.now());
  }

  /** Records that a task of a client has ended within `quickMs`. */
  quick(client: string, tookMs: number): void {
    const lastMs = performance.now();
    const known = this.#trusted.peek(client) ?? this.#others.peek(client);
    const sinceMs = known === undefined || lastMs - known.lastMs > trustedForMs ? lastMs : known.sinceMs;
    this.#trusted.delete(client);
    this.#others.delete(client);
    if (tookMs >= this.#quickMs / 2) {
      this.#others.set(client, { sinceMs: lastMs + trustAgainMs - trustAfterMs, lastMs });
    } else if (lastMs - sinceMs < trustAfterMs || this.isSlow(client)) {
      this.#others.set(client, { sinceMs, lastMs });
    } else {
      this.#trusted.set(client, { sinceMs, lastMs });
      this.#lastTrustedMs = lastMs;
    }
  }

  isSlow(client: string): boolean {
    const atMs = this.#slow.peek(client);
    return atMs !== undefined && performance.now() - atMs < slowForMs;
  }

  isTrusted(client: string): boolean {
    const span = this.#trusted.peek(client);
    return span !== undefined && performance.now() - span.lastMs < trustedForMs;
  }

  /** True if a trusted client was active recently. */
  get hasTrusted(): boolean {
    return performance.now() - this.#lastTrustedMs < presentForMs;
  }

  /**
   * Takes the next item of a trusted client, even if other clients are before it. If `onlyLongTrusted`, takes only an
   * item of a client that has been trusted for long (see longTrustShare).
   */
  takeTrusted<Item extends { readonly client: string }>(
    queue: FairQueue<Item>,
    onlyLongTrusted = false,
  ): Item | undefined {
    const leastMs = onlyLongTrusted ? this.#longestSpanMs * longTrustShare : 0;
    for (const item of queue.next()) {
      if (!this.isTrusted(item.client) || this.#spanMs(item.client) < leastMs) continue;
      queue.takeAhead(item);
      return item;
    }
    return undefined;
  }

  /** Returns the time in ms for which all tasks of a trusted client have been short. */
  #spanMs(client: string): number {
    const sinceMs = this.#trusted.peek(client)?.sinceMs;
    return sinceMs === undefined ? 0 : performance.now() - sinceMs;
  }

  /** The longest time in ms for which all tasks of a trusted client have been short, among the recently active clients. */
  get #longestSpanMs(): number {
    const nowMs = performance.now();
    let longestMs = 0;
    for (const { sinceMs, lastMs } of this.#trusted.values()) {
      if (nowMs - lastMs < presentForMs) longestMs = Math.max(longestMs, nowMs - sinceMs);
    }
    return longestMs;
  }
}
