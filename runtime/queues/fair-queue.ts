// Fair queue: clients take turns; the items of one client are first in, first out. Used for requests of several clients that
// wait for slots, for task workers and similar queues. Every operation takes amortized constant time. Memory is allocated only
// when an item arrives or its client has a turn.
import { type Link, LinkedList } from "./linked-list.ts";

/** Waiting items of one client. */
interface Lane<T> {
  readonly client: string;
  readonly items: LinkedList<T>;
  /** Link of this lane (the queue of one client) in the list `#newcomers` or `#round`. */
  turn: Link<Lane<T>>;
  isNewcomer: boolean;
}

interface Place<T> {
  readonly lane: Lane<T>;
  readonly inLane: Link<T>;
  /** Link in the list of items by arrival; null if the item's wait is not limited. */
  readonly inArrivals: Link<T> | null;
}

export class FairQueue<T extends { readonly client: string }> {
  readonly #places = new Map<T, Place<T>>();
  readonly #lanes = new Map<string, Lane<T>>();
  /** Clients without a recent turn. Turns alternate between this list and `#round`; this list comes first. */
  readonly #newcomers = new LinkedList<Lane<T>>();
  /**
   * Clients that have had a turn, least recent first. A client without items keeps its position until its turn comes. So a
   * client that sends one request at a time does not become a newcomer again with each request.
   */
  readonly #round = new LinkedList<Lane<T>>();
  readonly #arrivals = new LinkedList<T>();
  #isNewcomersTurn = true;

  get size(): number {
    return this.#places.size;
  }

  /** The item that has waited longest, among the items whose waiting time is limited. */
  get oldest(): T | undefined {
    return this.#arrivals.first;
  }

  add(item: T, hasLimit: boolean): void {
    const lane = this.#laneOf(item.client);
    const inArrivals = hasLimit ? this.#arrivals.push(item) : null;
    this.#places.set(item, { lane, inLane: lane.items.push(item), inArrivals });
  }

  /** Puts an item back as the first item of its client. The waiting time of the item is then not limited. */
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

  /** Takes an item before its client's turn. The client moves to the end of `#round`; empty lanes at its start are dropped. */
  takeAhead(item: T): void {
    const lane = this.#places.get(item)?.lane;
    if (lane === undefined) return;
    (lane.isNewcomer ? this.#newcomers : this.#round).remove(lane.turn);
    // Otherwise, a queue of which take() is never called would keep the lane of every client.
    for (let empty = this.#round.first; empty?.items.isEmpty; empty = this.#round.first) {
      this.#round.remove(empty.turn);
      this.#lanes.delete(empty.client);
    }
    this.#hadTurn(lane, item);
  }

  /** Yields the next item of each client. */
  *next(): Generator<T> {
    for (const list of [this.#newcomers, this.#round]) {
      for (const { items } of list) if (items.first !== undefined) yield items.first;
    }
  }

  /** Yields the items of a client, newest first. */
  *newestOf(client: string): Generator<T> {
    const lane = this.#lanes.get(client);
    if (lane !== undefined) yield* lane.items.backwards();
  }

  /** Removes an item; this does not count as a turn of its client. Returns false if the item is not in the queue. */
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

  /** Checks that every item is in exactly one lane (queue of one client), and every lane in exactly one list. Throws if not. */
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

  /** Removes and returns the first lane (queue of one client) that has items. Drops the empty lanes before it. */
  #nextOf(list: LinkedList<Lane<T>>): Lane<T> | undefined {
    for (let lane = list.first; lane !== undefined; lane = list.first) {
      list.remove(lane.turn);
      if (!lane.items.isEmpty) return lane;
      this.#lanes.delete(lane.client);
    }
    return undefined;
  }

  /** Clears the order of turns. Called when the queue is empty, because the order then has no effect. */
  #forgetTurns(): void {
    this.#lanes.clear();
    this.#newcomers.clear();
    this.#round.clear();
    this.#isNewcomersTurn = true;
  }
}
