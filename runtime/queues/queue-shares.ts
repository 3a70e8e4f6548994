// QueueShares: counts what each client has waiting for its first turn and decides who gives way when a queue is full. Used
// wherever requests wait: the scheduler's queue, the text side in front of it, the waiting room of a model that is loaded.

/** What a client would give up first, each request as its items. Only what may be displaced. */
export type NewestRequests<T> = (client: string) => Iterator<readonly T[]>;

/**
 * One client alone may fill a queue. Where others come, the places are shared: a request of n items that finds too few
 * places free takes those of clients that have more waiting than its own client will have with it, from the client that
 * has most, newest request first. Each exchange brings the two clients closer to equal, so the one that gave way cannot take
 * the place back. Requests are displaced as a whole, and only where none of their items has begun, or where they stand
 * still because nobody reads them. Priority does not count here: otherwise one client could keep all places by asking for a
 * high one.
 */
export class QueueShares {
  readonly #counts = new Map<string, number>();

  /** What a client has waiting. */
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

  /** Whether `count` more of a client find a place where `free` places are left: others may have to give theirs up. */
  hasRoomFor(client: string, count: number, free: number): boolean {
    let places = free;
    if (places >= count) return true;
    const share = this.of(client) + count;
    for (const waiting of this.#counts.values()) places += Math.max(waiting - share, 0);
    return places >= count;
  }

  /**
   * Which items give up their places to `count` more of a client where `free` places are left; null where too few can.
   * Nothing is changed.
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

  /** Throws where the counts are not those of these clients' items. */
  checkIntegrity(clients: Iterable<string>): void {
    const counted = new Map<string, number>();
    for (const client of clients) counted.set(client, (counted.get(client) ?? 0) + 1);
    const isRight = counted.size === this.#counts.size && [...counted].every(([name, n]) => this.of(name) === n);
    if (!isRight)
      throw new Error(`waiting: ${JSON.stringify([...counted])}; counted ${JSON.stringify([...this.#counts])}`);
  }
}
