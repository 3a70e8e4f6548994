// Waiting queue: the sequences that wait for a slot, by priority; the lower the number, the sooner. Within one priority those
// that had to give their slot back come first, oldest first, then the one that lacked KV memory, then clients in turns. next()
// and takeAhead() are for clients that have waited for their share of the slots: between clients priority does not count then.
// Parked sequences wait for their readers, beside the queue; their places are shared by client with those of the queue. Used by
// SlotManager only.
import { DefaultMap } from "../../../../runtime/collections.ts";
import { FairQueue } from "../../../../runtime/queues/fair-queue.ts";
import { QueueShares } from "../../../../runtime/queues/queue-shares.ts";
import type { Sequence, SequenceRequest } from "../sequence.ts";

interface Front<S> {
  readonly sequence: S;
  readonly hasLimit: boolean;
}

export class WaitingQueue<S extends Sequence> {
  /** Those that had their turn, but there was no room for them, or no longer; sorted. */
  readonly #front: Front<S>[] = [];
  /** Sorted by priority; a queue goes when it is empty. */
  readonly #queues: { readonly priority: number; readonly queue: FairQueue<S> }[] = [];
  readonly preempted = new Set<S>();
  /** Counts those whose places may go to others (see mayBeDisplaced). */
  readonly #shares = new QueueShares();

  get size(): number {
    return this.#queues.reduce((sum, { queue }) => sum + queue.size, this.#front.length);
  }

  /** The one that was parked last at the end. */
  get parked(): ReadonlySet<S> {
    return this.preempted;
  }

  /** Of those whose wait has a limit, the one that waits longest. */
  get oldest(): S | undefined {
    let oldest: S | undefined;
    const consider = (one: S | undefined): void => {
      if (one !== undefined && (oldest === undefined || one.queuedMs < oldest.queuedMs)) oldest = one;
    };
    for (const { sequence, hasLimit } of this.#front) if (hasLimit) consider(sequence);
    for (const { queue } of this.#queues) consider(queue.oldest);
    return oldest;
  }

  /**
   * The sequences that give their places up to `count` more of a client, where `free` places are left; null where too few
   * can. They are still here.
   */
  displacedBy(client: string, count: number, free: number): readonly S[] | null {
    return this.#shares.displacedBy(client, count, free, (other) => this.#newestRequests(other));
  }

  add(sequence: S, hasLimit: boolean): void {
    this.#count(sequence);
    this.#queueOf(sequence.priority).add(sequence, hasLimit);
  }

  /** Puts one that was here before ahead of all others of its client; its wait has no limit any more. */
  putBack(sequence: S): void {
    this.#count(sequence);
    this.#queueOf(sequence.priority).putBack(sequence);
  }

  /** Puts one that cannot have a slot, or not keep it, for want of memory ahead of all others of its priority. */
  addFront(sequence: S, hasLimit: boolean): void {
    this.#count(sequence);
    this.#front.push({ sequence, hasLimit });
    this.#front.sort(({ sequence: a }, { sequence: b }) => a.priority - b.priority || placeOf(a) - placeOf(b));
  }

  /** Takes one that waits out of the queue, or takes one in that does not wait: it is in no one's way until its reader goes on. */
  park(sequence: S): void {
    this.remove(sequence);
    sequence.wasParked = true;
    this.preempted.add(sequence);
    this.#count(sequence);
  }

  take(): S | undefined {
    const first = this.#front[0]?.sequence;
    const next = this.#queues[0];
    if (first !== undefined && first.priority <= (next?.priority ?? Number.POSITIVE_INFINITY)) {
      this.#front.shift();
      this.#uncount(first);
      return first;
    }
    const taken = next?.queue.take();
    this.#removeEmpty();
    if (taken !== undefined) this.#uncount(taken);
    return taken;
  }

  /** Whether some of those that wait come before others by their priority. */
  get hasPriorities(): boolean {
    const one = this.#queues[0]?.priority ?? this.#front[0]?.sequence.priority;
    return this.#queues.length > 1 || this.#front.some(({ sequence }) => sequence.priority !== one);
  }

  /** The next sequence of each client: of its own, the first by priority. O(clients), times the priorities of each. */
  *next(): Generator<S> {
    const clients = new Set<string>();
    for (const sequence of this.#byPriority()) {
      if (clients.has(sequence.client)) continue;
      clients.add(sequence.client);
      yield sequence;
    }
  }

  /** Takes one of next() ahead of all others; its client has had a turn with it. */
  takeAhead(sequence: S): void {
    if (!this.#removeFront(sequence)) this.#find(sequence)?.takeAhead(sequence);
    this.#removeEmpty();
    this.#uncount(sequence);
  }

  /** Parked or not. False if it is not here. */
  remove(sequence: S): boolean {
    const isQueued = () => this.#removeFront(sequence) || this.#find(sequence)?.remove(sequence) === true;
    const isRemoved = this.preempted.delete(sequence) || isQueued();
    if (isRemoved) this.#uncount(sequence);
    this.#removeEmpty();
    return isRemoved;
  }

  /** Those that wait for a slot. */
  *[Symbol.iterator](): Generator<S> {
    for (const { sequence } of this.#front) yield sequence;
    for (const { queue } of this.#queues) yield* queue;
  }

  checkIntegrity(): void {
    for (const { queue } of this.#queues) queue.checkIntegrity();
    if (this.#queues.some(({ queue }) => queue.size === 0)) throw new Error("a queue is kept though it is empty");
    this.#shares.checkIntegrity([...this, ...this.preempted].filter(mayBeDisplaced).map(({ client }) => client));
  }

  /** Those that lack memory and the next of each client in each queue, by priority. */
  *#byPriority(): Generator<S> {
    let at = 0;
    for (const { priority, queue } of this.#queues) {
      for (; (this.#front[at]?.sequence.priority ?? Infinity) <= priority; at++)
        yield (this.#front[at] as Front<S>).sequence;
      yield* queue.next();
    }
    for (const { sequence } of this.#front.slice(at)) yield sequence;
  }

  #count(sequence: S): void {
    if (mayBeDisplaced(sequence)) this.#shares.add(sequence.client);
  }

  #uncount(sequence: S): void {
    if (mayBeDisplaced(sequence)) this.#shares.remove(sequence.client);
  }

  /**
   * What may be displaced of a client's requests: first those that are parked, the latest first; then those that have not
   * begun or were parked, by what matters least, then the newest.
   */
  *#newestRequests(client: string): Generator<readonly S[]> {
    yield* this.#parkedRequests(client);
    for (const { queue } of this.#queues.toReversed()) {
      let request: S[] = [];
      for (const sequence of queue.newestOf(client)) {
        if (sequence.request.hasBegun && !sequence.wasParked) continue;
        if (request.length > 0 && request[0]?.request !== sequence.request) {
          yield request;
          request = [];
        }
        request.push(sequence);
      }
      if (request.length > 0) yield request;
    }
  }

  *#parkedRequests(client: string): Iterable<readonly S[]> {
    const requests = new DefaultMap<SequenceRequest, S[]>(() => []);
    for (const sequence of [...this.preempted].reverse()) {
      if (sequence.client === client) requests.get(sequence.request).push(sequence);
    }
    yield* requests.values();
  }

  #removeFront(sequence: S): boolean {
    const at = this.#front.findIndex((one) => one.sequence === sequence);
    if (at >= 0) this.#front.splice(at, 1);
    return at >= 0;
  }

  #find({ priority }: S): FairQueue<S> | undefined {
    return this.#queues.find((one) => one.priority === priority)?.queue;
  }

  #queueOf(priority: number): FairQueue<S> {
    const known = this.#queues.find((one) => one.priority === priority);
    if (known !== undefined) return known.queue;
    const queue = new FairQueue<S>();
    this.#queues.push({ priority, queue });
    this.#queues.sort((a, b) => a.priority - b.priority);
    return queue;
  }

  #removeEmpty(): void {
    for (let i = this.#queues.length - 1; i >= 0; i--) if (this.#queues[i]?.queue.size === 0) this.#queues.splice(i, 1);
  }
}

/** It has had no slot, or none since its reader was so far behind that it was parked. */
function mayBeDisplaced({ order, wasParked }: Sequence): boolean {
  return order === 0 || wasParked;
}

/** Those that ran come first, the longest ago first. */
function placeOf({ order }: Sequence): number {
  return order === 0 ? Number.MAX_SAFE_INTEGER : order;
}
