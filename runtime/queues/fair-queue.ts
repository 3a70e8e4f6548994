// A queue in which clients take turns; within a client, first come first served. Used wherever requests of several clients
// wait for one thing: slots, task workers. Every operation is O(1), amortised over the clients that have left; memory is
// allocated only when an item arrives and when its client has a turn.
import { type Link, LinkedList } from "./linked-list.ts";

/** What one client has waiting. */
interface Lane<T> {
  readonly client: string;
  readonly items: LinkedList<T>;
  /** Its place among the newcomers or in the round. */
  turn: Link<Lane<T>>;
  isNewcomer: boolean;
}

interface Place<T> {
  readonly lane: Lane<T>;
  readonly inLane: Link<T>;
  /** null where the wait has no limit. */
  readonly inArrivals: Link<T> | null;
}

export class FairQueue<T extends { readonly client: string }> {
  readonly #places = new Map<T, Place<T>>();
  readonly #lanes = new Map<string, Lane<T>>();
  /** Clients that have had no turn lately: they go first, but never two of them while the round waits. */
  readonly #newcomers = new LinkedList<Lane<T>>();
  /**
   * Clients that have had a turn, the longest ago first. One that has nothing waiting keeps its place until the round
   * comes to it, so that a client gains nothing by sending its requests one after another.
   */
  readonly #round = new LinkedList<Lane<T>>();
  readonly #arrivals = new LinkedList<T>();
  #isNewcomersTurn = true;

  get size(): number {
    return this.#places.size;
  }

  /** Of those whose wait has a limit, the one that waits longest. */
  get oldest(): T | undefined {
    return this.#arrivals.first;
  }

  add(item: T, hasLimit: boolean): void {
    const lane = this.#laneOf(item.client);
    const inArrivals = hasLimit ? this.#arrivals.push(item) : null;
    this.#places.set(item, { lane, inLane: lane.items.push(item), inArrivals });
  }

  /** Puts an item that was here before ahead of all others of its client; its wait has no limit any more. */
  putBack(item: T): void {
    const lane = this.#laneOf(item.client);
    this.#places.set(item, { lane, inLane: lane.items.unshift(item), inArrivals: null });
  }

  take(): T | undefined {
    const [first, second] = this.#isNewcomersTurn ? [this.#newcomers, this.#round] : [this.#round, this.#newcomers];
    const lane = this.#nextOf(first) ?? this.#nextOf(second);
    const item = lane?.items.first;
    if (lane === undefined || item === undefined) return undefined;
    this.#isNewcomersTurn = !lane.isNewcomer || this.#round.isEmpty;
    this.#hadTurn(lane, item);
    return item;
  }

  /** Takes an item though it is not its client's turn, which is the last one of the round from here on. */
  takeAhead(item: T): void {
    const lane = this.#places.get(item)?.lane;
    if (lane === undefined) return;
    (lane.isNewcomer ? this.#newcomers : this.#round).remove(lane.turn);
    this.#hadTurn(lane, item);
  }

  /** The next item of each client. */
  *next(): Generator<T> {
    for (const list of [this.#newcomers, this.#round]) {
      for (const { items } of list) if (items.first !== undefined) yield items.first;
    }
  }

  /** What a client has waiting, the last first. */
  *newestOf(client: string): Generator<T> {
    const lane = this.#lanes.get(client);
    if (lane !== undefined) yield* lane.items.backwards();
  }

  /** Takes an item out, without a turn. False if it does not wait here. */
  remove(item: T): boolean {
    const place = this.#places.get(item);
    if (place === undefined) return false;
    const { lane, inLane, inArrivals } = place;
    this.#places.delete(item);
    lane.items.remove(inLane);
    if (inArrivals !== null) this.#arrivals.remove(inArrivals);
    if (this.#places.size === 0) this.#forgetTurns();
    else if (lane.isNewcomer && lane.items.isEmpty) {
      this.#newcomers.remove(lane.turn);
      this.#lanes.delete(lane.client);
    }
    return true;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#places.keys();
  }

  /** Throws if an item is not in exactly one lane, or a lane not in exactly one list. */
  checkIntegrity(): void {
    const lanes = [...this.#newcomers, ...this.#round];
    const items = lanes.flatMap((lane) => [...lane.items]);
    const isWhole =
      new Set(items).size === items.length &&
      items.length === this.#places.size &&
      items.every((item) => this.#places.get(item)?.lane === this.#lanes.get(item.client)) &&
      new Set(lanes).size === lanes.length &&
      lanes.length === this.#lanes.size;
    if (!isWhole)
      throw new Error(`${items.length} in ${lanes.length} lanes of ${this.#lanes.size}, ${this.size} places`);
  }

  #hadTurn(lane: Lane<T>, item: T): void {
    lane.isNewcomer = false;
    lane.turn = this.#round.push(lane);
    this.remove(item);
  }

  #laneOf(client: string): Lane<T> {
    const known = this.#lanes.get(client);
    if (known !== undefined) return known;
    const lane = { client, items: new LinkedList<T>(), isNewcomer: true } as Lane<T>;
    lane.turn = this.#newcomers.push(lane);
    this.#lanes.set(client, lane);
    return lane;
  }

  /** Takes the first lane that has something off a list; those before it have left. */
  #nextOf(list: LinkedList<Lane<T>>): Lane<T> | undefined {
    for (let lane = list.first; lane !== undefined; lane = list.first) {
      list.remove(lane.turn);
      if (!lane.items.isEmpty) return lane;
      this.#lanes.delete(lane.client);
    }
    return undefined;
  }

  /** Nobody waits, so nobody can be overtaken. */
  #forgetTurns(): void {
    this.#lanes.clear();
    this.#newcomers.clear();
    this.#round.clear();
    this.#isNewcomersTurn = true;
  }
}
