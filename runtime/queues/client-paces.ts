// Client paces: what is known of clients by how long their tasks took. Used where clients wait for each other's work. Bounded:
// what was seen longest ago is dropped first.
import { LruMap } from "../collections.ts";
import type { FairQueue } from "./fair-queue.ts";

/** A client is slow for so long after a slow task, and trusted for so long after its last short one. */
const slowForMs = 60_000;
const trustedForMs = 600_000;
/** A client is trusted when all its tasks have been short for so long: not with the first requests of a burst. */
const trustAfterMs = 2000;
/** How long after a task that was not short a client can be trusted again. */
const trustAgainMs = 10_000;
/** A worker is kept free for trusted clients while one of them has finished a task within this time. */
const presentForMs = 10_000;
/** A client is long-trusted if it has been trusted for this share of the longest time among recent clients. */
const longTrustShare = 0.5;
const maxRemembered = 1024;

/** The time in which all tasks of a client were short, by performance.now(). */
interface ShortSpan {
  /** In the future after a task that was not short. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

export class ClientPaces {
  readonly #quickMs: number;
  /** When each had its last slow task. */
  readonly #slow = new LruMap<string, number>(maxRemembered);
  /** Clients that are trusted and those that are not yet, apart: newcomers displace no trusted one. */
  readonly #trusted = new LruMap<string, ShortSpan>(maxRemembered);
  readonly #others = new LruMap<string, ShortSpan>(maxRemembered);
  #lastTrustedMs = Number.NEGATIVE_INFINITY;

  /** A task that takes longer than `quickMs` is slow, one that takes less than half of that is short. */
  constructor(quickMs: number) {
    this.#quickMs = quickMs;
  }

  /** A client's task has turned out slow. */
  slow(client: string): void {
    this.#trusted.delete(client);
    this.#others.delete(client);
    this.#slow.set(client, performance.now());
  }

  /** A client's task has ended before it was slow. */
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

  /** Whether a trusted client has been there lately. */
  get hasTrusted(): boolean {
    return performance.now() - this.#lastTrustedMs < presentForMs;
  }

  /** Takes the next item of a trusted client, out of turn; with `onlyLongTrusted`, of a long-trusted one. */
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

  /** How long a trusted client's tasks have all been short. */
  #spanMs(client: string): number {
    const sinceMs = this.#trusted.peek(client)?.sinceMs;
    return sinceMs === undefined ? 0 : performance.now() - sinceMs;
  }

  /** The longest time that a recent client has been trusted. */
  get #longestSpanMs(): number {
    const nowMs = performance.now();
    let longestMs = 0;
    for (const { sinceMs, lastMs } of this.#trusted.values()) {
      if (nowMs - lastMs < presentForMs) longestMs = Math.max(longestMs, nowMs - sinceMs);
    }
    return longestMs;
  }
}
