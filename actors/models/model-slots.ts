// ModelSlots: bounds how many models are in memory at once (max_loaded_models). Models queue for a slot in order of arrival.
// While one waits, the least recently used holder is evicted, one at a time. No deadlock: loading ends by itself, and an
// evicted model leaves when its requests have ended.

/** A model, as the slots see it. */
export interface SlotUser {
  /** Requests in flight. */
  readonly inFlight: number;
  readonly lastUsedMs: number;
  /** It has been loaded, and can be unloaded for another model. */
  readonly isEvictable: boolean;
  /** It will release its slot without being evicted, or is being evicted. */
  readonly isLeaving: boolean;
  /** It has been given a slot, or its eviction began or was withdrawn. */
  reconcile(): void;
}

export class ModelSlots {
  readonly #count: number;
  readonly #holders = new Set<SlotUser>();
  readonly #queue = new Set<SlotUser>();
  #evicted: SlotUser | null = null;

  /** null: no limit. */
  constructor(count: number | null) {
    this.#count = count ?? Number.POSITIVE_INFINITY;
  }

  isEvicted(user: SlotUser): boolean {
    return this.#evicted === user;
  }

  /** True if the user has a slot now. Otherwise it waits in the queue; reconcile() tells it that it has one. */
  acquire(user: SlotUser): boolean {
    if (this.#holders.has(user)) return true;
    this.#queue.add(user);
    if (this.#holders.size < this.#count) this.#grant(user);
    else this.review();
    return this.#holders.has(user);
  }

  /** Gives up the slot, or the place in the queue. */
  release(user: SlotUser): void {
    this.#queue.delete(user);
    this.#holders.delete(user);
    if (this.#evicted === user) this.#evicted = null;
    this.review();
  }

  /** Gives free slots to the first in the queue. Evicts a holder if more models wait, else withdraws the eviction. */
  review(): void {
    for (const user of this.#queue) {
      if (this.#holders.size >= this.#count) break;
      this.#grant(user);
      user.reconcile();
    }
    const holders = [...this.#holders];
    if (this.#queue.size > 0 && holders.some(({ isLeaving }) => isLeaving)) return;
    const changed = this.#evicted;
    this.#evicted = this.#queue.size > 0 ? leastRecentlyUsed(holders.filter(({ isEvictable }) => isEvictable)) : null;
    (this.#evicted ?? changed)?.reconcile();
  }

  #grant(user: SlotUser): void {
    this.#queue.delete(user);
    this.#holders.add(user);
  }
}

/** The least recently used user, preferring users without requests in flight. */
function leastRecentlyUsed(users: readonly SlotUser[]): SlotUser | null {
  const [first] = users.toSorted(
    (a, b) => Number(a.inFlight > 0) - Number(b.inFlight > 0) || a.lastUsedMs - b.lastUsedMs,
  );
  return first ?? null;
}
