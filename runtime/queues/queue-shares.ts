// Queue shares: counts the waiting items of each client, and decides which items are displaced from a full queue. Used by the
// scheduler's queue, the text side before it, and the requests that wait for a model to load.

/** Requests of a client that may be displaced, the newest first, each as its items. */
export type NewestRequests<T> = (client: string) => Iterator<readonly T[]>;

/**
 * A single client may fill a queue. With several clients the places are shared: a request of n items that finds too few free
 * places displaces items of clients that have more waiting than its own client will have, from the client with most, newest
 * request first. Each displacement brings the two clients closer to equal, so the displaced client cannot take the place back.
 * Requests are displaced as a whole, and only if none of their items has begun, or if they are paused because their reader
 * is behind. Priority does not count: otherwise one client could keep all places with a high priority.
 */
export class QueueShares {
  readonly #counts = new Map<string, number>();

  /** Waiting items of a client. */
  of(client: string): number {
    return this.#counts.get(client) ?? 0;
  }

  add(client: string): void {
    this.#counts.set(client, this.of(client) + 1);
  }

  remove(client: string): void {
    const left = this.of(client) - 1;
    if (left > 0) this.#counts.set(client, left);
    else this.#counts.delete(client);
  }

  /** Whether `count` more items of a client fit, given `free` places and the items of others that may be displaced. */
  hasRoomFor(client: string, count: number, free: number): boolean {
    let places = free;
    if (places >= count) return true;
    const share = this.of(client) + count;
    for (const waiting of this.#counts.values()) places += Math.max(waiting - share, 0);
    return places >= count;
  }

  /**
   * Items to displace for `count` more items of a client, given `free` places; null: too few can be displaced. Changes nothing.
   */
  displacedBy<T>(client: string, count: number, free: number, newestOf: NewestRequests<T>): readonly T[] | null {
    const displaced: T[] = [];
    if (free >= count) return displaced;
    const share = this.of(client) + count;
    const others = [...this.#counts]
      .filter(([, waiting]) => waiting > share)
      .map(([name, waiting]) => ({ waiting, requests: newestOf(name) }));
    while (free + displaced.length < count) {
      const most = others.reduce<(typeof others)[number] | null>(
        (best, one) => (one.waiting > (best?.waiting ?? share) ? one : best),
        null,
      );
      if (most === null) return null;
      const { done, value } = most.requests.next();
      // The client's other requests cannot be displaced.
      most.waiting = done ? 0 : most.waiting - value.length;
      if (!done) displaced.push(...value);
    }
    return displaced;
  }

  /** Throws unless the counts match these clients' items. */
  checkIntegrity(clients: Iterable<string>): void {
    const counted = new Map<string, number>();
    for (const client of clients) counted.set(client, (counted.get(client) ?? 0) + 1);
    const isRight = counted.size === this.#counts.size && [...counted].every(([name, n]) => this.of(name) === n);
    if (!isRight)
      throw new Error(`waiting: ${JSON.stringify([...counted])}; counted ${JSON.stringify([...this.#counts])}`);
  }
}
