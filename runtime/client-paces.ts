// Client paces: what is known of clients by how long their tasks took. Used where clients wait for each other's work. Bounded:
// what was seen longest ago is dropped first.
import type { FairQueue } from "./fair-queue.ts";

/** A client is slow for so long after a slow task, and trusted for so long after its last short one. */
const slowForMs = 60_000;
const trustedForMs = 600_000;
/** A client is trusted when all its tasks have been short for so long: not with the first requests of a burst. */
const trustAfterMs = 2000;
/** The same after one that was not. */
const trustAgainMs = 10_000;
/** One that comes again within this time is to find a worker. */
const presentForMs = 10_000;
const maxRemembered = 1024;

interface ShortSpan {
  /** In the future after a task that was not short. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

export class ClientPaces {
  /** When each had its last slow task, by performance.now(); the latest last. */
  readonly #slow = new Map<string, number>();
  /** Since when the tasks of each have all been short; the latest last. */
  readonly #short = new Map<string, ShortSpan>();
  readonly #quickMs: number;
  #lastTrustedMs = Number.NEGATIVE_INFINITY;

  /** A task that takes longer than `quickMs` is slow, one that takes less than half of that is short. */
  constructor(quickMs: number) {
    this.#quickMs = quickMs;
  }

  /** A client's task was slow. */
  slow(client: string): void {
    this.#short.delete(client);
    remember(this.#slow, client, performance.now());
  }

  /** A client's task took so long, which is not slow. */
  quick(client: string, tookMs: number): void {
    const lastMs = performance.now();
    const isShort = tookMs < this.#quickMs / 2;
    const { sinceMs } = this.#short.get(client) ?? { sinceMs: lastMs };
    remember(this.#short, client, { sinceMs: isShort ? sinceMs : lastMs + trustAgainMs - trustAfterMs, lastMs });
    if (lastMs - sinceMs >= trustAfterMs) this.#lastTrustedMs = lastMs;
  }

  /** Whether a trusted client has been there lately. */
  get hasTrusted(): boolean {
    return performance.now() - this.#lastTrustedMs < presentForMs;
  }

  isSlow(client: string): boolean {
    const atMs = this.#slow.get(client);
    return atMs !== undefined && performance.now() - atMs < slowForMs;
  }

  isTrusted(client: string): boolean {
    const span = this.#short.get(client);
    if (span === undefined) return false;
    const now = performance.now();
    return now - span.lastMs < trustedForMs && now - span.sinceMs >= trustAfterMs;
  }

  /** Takes the next item of a trusted client, ahead of others' turns. */
  takeTrusted<Item extends { readonly client: string }>(queue: FairQueue<Item>): Item | undefined {
    for (const item of queue.next()) {
      if (!this.isTrusted(item.client)) continue;
      queue.takeAhead(item);
      return item;
    }
    return undefined;
  }
}

function remember<Value>(seen: Map<string, Value>, client: string, value: Value): void {
  seen.delete(client);
  seen.set(client, value);
  if (seen.size <= maxRemembered) return;
  for (const [oldest] of seen) {
    seen.delete(oldest);
    return;
  }
}
