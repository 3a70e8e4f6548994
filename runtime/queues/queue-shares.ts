// Queue shares: counts the waiting items of each client, and decides which items are displaced from a full queue. Used by the
// scheduler's queue, by the text processing before it, and for requests that wait for a model to load.

/** Yields the requests of a client that may be displaced, newest first. Each request is the list of its items. */
export type NewestRequests<T> = (client: string) => Iterator<readonly T[]>;

/**
 * A single client may fill a queue. With several clients, the positions in the queue are shared. If a request of n items finds
 * too few free positions, it displaces items of clients that have more waiting items than its own client will have. The newest
 * request of the client with the most items is displaced first. Each displacement makes the numbers of items of the two clients
 * more equal, so the displaced client cannot displace the new item in turn. Requests are displaced as a whole. They are
 * displaced only if none of their items has begun, or if they are paused because their reader is slow. Priority does not count,
 * because otherwise one client could keep all positions with a high priority.
 */
export class QueueShares {
  readonly #counts = new Map<string, number>();

  /** Returns the number of waiting items of a client. */
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

  /**
   * Returns whether `count` more items of a client fit, given `free` free positions and the items of other clients that may be
   * displaced.
   */
  hasRoomFor(client: string, count: number, free: number): boolean {
    let places = free;
    if (places >= count) return true;
    const share = this.of(client) + count;
    for (const waiting of this.#counts.values()) places += Math.max(waiting - share, 0);
    return places >= count;
  }

  /**
   * Returns the items to displace for `count` more items of a client, given `free` free positions; null if not enough items can
   * be displaced. Changes nothing.
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
      // If the iterator is done, none of the client's remaining requests may be displaced.
      most.waiting = done ? 0 : most.waiting - value.length;
      if (!done) displaced.push(...value);
    }
    return displaced;
  }

  /** Throws if a count is wrong. `clients` lists the client of each waiting item. */
  checkIntegrity(clients: Iterable<string>): void {
    const counted = new Map<string, number>();
    for (const client of clients) counted.set(client, (counted.get(client) ?? 0) + 1);
    const isRight = counted.size === this.#counts.size && [...counted].every(([name, n]) => this.of(name) === n);
    if (!isRight)
      throw new Error(`waiting: ${JSON.stringify([...counted])}; counted ${JSON.stringify([...this.#counts])}`);
  }
}
