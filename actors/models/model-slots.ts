// ModelSlots: limits how many models are in memory at once (max_loaded_models). Models queue for a slot in order of arrival.
// While a model waits, the least recently used model with a slot is evicted; only one model at a time is evicted. Deadlock is
// impossible, because every load ends by itself, and an evicted model releases its slot when its requests have ended.

/** The part of a model that ModelSlots uses. */
export interface SlotUser {
  /** Number of requests in flight. */
  readonly inFlight: number;
  readonly lastUsedMs: number;
  /** True if the model has been loaded and can be unloaded in favour of another model. */
  readonly isEvictable: boolean;
  /** True if the model is going to be unloaded, because of its eviction or for another reason. */
  readonly isLeaving: boolean;
  /** Called when the model has been given a slot, or when its eviction has begun or was withdrawn. */
  reconcile(): void;
}

export class ModelSlots {
  readonly #count: number;
  readonly #holders = new Set<SlotUser>();
  readonly #queue = new Set<SlotUser>();
  #evicted: SlotUser | null = null;

  /** `count`: number of slots; null: no limit. */
  constructor(count: number | null) {
    this.#count = count ?? Number.POSITIVE_INFINITY;
  }

  isEvicted(user: SlotUser): boolean {
    return this.#evicted === user;
  }

  /**
   * Returns whether the user has a slot now. A user without a slot waits in the queue; its reconcile()
   * is called when it gets a slot.
   */
  acquire(user: SlotUser): boolean {
    if (this.#holders.has(user)) return true;
    this.#queue.add(user);
    if (this.#holders.size < this.#count) this.#grant(user);
    else this.review();
    return this.#holders.has(user);
  }

  /** Releases the user's slot, or removes the user from the queue. */
  release(user: SlotUser): void {
    this.#queue.delete(user);
    this.#holders.delete(user);
    if (this.#evicted === user) this.#evicted = null;
    this.review();
  }

  /**
   * Gives free slots to the first users in the queue. If more users wait, evicts a holder. Otherwise,
   * withdraws the eviction in progress.
   */
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

/** Returns the least recently used of the users without requests in flight, or of all users if none is idle. null: no users. */
function leastRecentlyUsed(users: readonly SlotUser[]): SlotUser | null {
  const [first] = users.toSorted(
    (a, b) => Number(a.inFlight > 0) - Number(b.inFlight > 0) || a.lastUsedMs - b.lastUsedMs,
  );
  return first ?? null;
}
