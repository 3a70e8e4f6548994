// ModelSlots: limits how many models are in memory at the same time (max_loaded_models). Models queue for a slot in order of
// arrival. While a model waits, the least recently used model with a slot is evicted, one model at a time. Deadlocks are
// impossible, because every load ends by itself, and an evicted model releases its slot when its requests have ended. Remote
// models need no slot: their loads do not end while their servers are down.
import type { RequestGate } from "./request-gate.ts";

/** The part of a model's interface that ModelSlots uses. */
export interface SlotUser {
  readonly gate: Pick<RequestGate, "inFlight" | "lastUsedMs">;
  /** Whether the model is loaded and can be unloaded in favour of another model. */
  readonly isEvictable: boolean;
  /** Whether the model is about to be unloaded, because of its eviction or for another reason. */
  readonly isLeaving: boolean;
  /** Called when the model has been given a slot, or when its eviction has begun or was withdrawn. */
  reconcile(): void;
}

export class ModelSlots {
  readonly #count: number;
  readonly #holders = new Set<SlotUser>();
  readonly #queue = new Set<SlotUser>();
  #evicted: SlotUser | null = null;

  /** `count`: number of slots; null = no limit. */
  constructor(count: number | null) {
    this.#count = count ?? Number.POSITIVE_INFINITY;
  }

  isEvicted(user: SlotUser): boolean {
    return this.#evicted === user;
  }

  /** Returns whether the model has a slot. A model without a slot is added to the queue; its reconcile() is called when it gets a slot. */
  acquire(user: SlotUser): boolean {
    if (this.#holders.has(user)) return true;
    this.#queue.add(user);
    if (this.#holders.size < this.#count) this.#grant(user);
    else this.review();
    return this.#holders.has(user);
  }

  /** Releases the model's slot, or removes the model from the queue. */
  release(user: SlotUser): void {
    this.#queue.delete(user);
    this.#holders.delete(user);
    if (this.#evicted === user) this.#evicted = null;
    this.review();
  }

  /**
   * Assigns free slots to the first models in the queue. If more models wait, evicts a model that has a slot. Otherwise,
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

/** Returns the least recently used of the idle models, or of all models if none is idle; null = `users` is empty. */
function leastRecentlyUsed(users: readonly SlotUser[]): SlotUser | null {
  const [first] = users.toSorted(
    ({ gate: a }, { gate: b }) => Number(a.inFlight > 0) - Number(b.inFlight > 0) || a.lastUsedMs - b.lastUsedMs,
  );
  return first ?? null;
}
