// Waiting queue: the sequences without a slot. Waiting sequences are served by priority, lower numbers first. Within a
// priority, sequences that lacked KV memory come first, oldest first. Then clients take turns, each with its preempted
// sequences first. A client that is owed a slot is served before all others, regardless of priority (see next() and
// takeAhead()). Sequences that were preempted because of slow clients are kept outside the queue, but they count
// towards the limit of queued sequences of their clients.
import { FairQueue } from "../../../../runtime/queues/fair-queue.ts";
import { QueueShares } from "../../../../runtime/queues/queue-shares.ts";
import type { Sequence, SequenceRequest } from "../sequence.ts";

export class WaitingQueue<S extends Sequence> {
  /** Sequences that were preempted because their clients read too slowly, the latest last. */
  readonly preempted = new Set<S>();
  /** Sequences that had their turn but lacked KV memory, in the order in which they are served. */
  readonly #front: S[] = [];
  /** Queues in order of priority. Empty queues are removed. */
  readonly #queues: { readonly priority: number; readonly queue: FairQueue<S> }[] = [];
  /** Counts the sequences whose places in the queue other clients may take (see mayBeDisplaced). */
  readonly #shares = new QueueShares();

  /** Number of sequences that wait for a slot. */
  get size(): number {
    return this.#queues.reduce((sum, { queue }) => sum + queue.size, this.#front.length);
  }

  /** The sequence that has waited longest, among the sequences with a limited waiting time. */
  get oldest(): S | undefined {
    let oldest: S | undefined;
    const consider = (one: S | undefined): void => {
      if (one !== undefined && (oldest === undefined || one.queuedMs < oldest.queuedMs)) oldest = one;
    };
    for (const one of this.#front) if (one.order === 0 && one.hasQueueLimit) consider(one);
    for (const { queue } of this.#queues) consider(queue.oldest);
    return oldest;
  }

  /**
   * Returns the sequences that lose their places in the queue if a client adds `count` sequences and `free` places
   * are left; null if too few places can be freed. Does not remove them.
   */
  displacedBy(client: string, count: number, free: number): readonly S[] | null {
    return this.#shares.displacedBy(client, count, free, (other) => this.#newestRequests(other));
  }

  /** Adds a sequence that has not had a slot. */
  add(sequence: S): void {
    this.#count(sequence);
    this.#queueOf(sequence.priority).add(sequence, sequence.hasQueueLimit);
  }

  /** Adds a sequence ahead of all other sequences of its client. Its waiting time is no longer limited. */
  putBack(sequence: S): void {
    this.#count(sequence);
    this.#queueOf(sequence.priority).putBack(sequence);
  }

  /** Adds a sequence that lacks KV memory ahead of all other sequences of its priority. */
  addFront(sequence: S): void {
    this.#count(sequence);
    this.#front.push(sequence);
    this.#front.sort((a, b) => a.priority - b.priority || rankOf(a) - rankOf(b));
  }

  /** Adds a sequence whose client reads too slowly. Removes it from the queue if it is there. */
  addPreempted(sequence: S): void {
    this.remove(sequence);
    sequence.wasPreempted = true;
    this.preempted.add(sequence);
    this.#count(sequence);
  }

  take(): S | undefined {
    const [first] = this.#front;
    const next = this.#queues[0];
    const isFront = first !== undefined && first.priority <= (next?.priority ?? Infinity);
    const taken = isFront ? this.#front.shift() : next?.queue.take();
    this.#removeEmpty();
    if (taken !== undefined) this.#uncount(taken);
    return taken;
  }

  /** Whether waiting sequences differ in priority. */
  get hasPriorities(): boolean {
    const one = this.#queues[0]?.priority ?? this.#front[0]?.priority;
    return this.#queues.length > 1 || this.#front.some(({ priority }) => priority !== one);
  }

  /** Yields the next sequence of each client: its first by priority. Takes O(clients × priorities). */
  *next(): Generator<S> {
    const clients = new Set<string>();
    for (const sequence of this.#byPriority()) {
      if (clients.has(sequence.client)) continue;
      clients.add(sequence.client);
      yield sequence;
    }
  }

  /**
   * Removes a sequence that next() yielded, because it is served before all others. This counts as its client's turn.
   */
  takeAhead(sequence: S): void {
    if (!this.#removeFront(sequence)) this.#find(sequence)?.takeAhead(sequence);
    this.#removeEmpty();
    this.#uncount(sequence);
  }

  /** Removes a waiting or preempted sequence. Returns false if it is not in this queue. */
  remove(sequence: S): boolean {
    const isRemoved =
      this.preempted.delete(sequence) || this.#removeFront(sequence) || this.#find(sequence)?.remove(sequence) === true;
    if (isRemoved) this.#uncount(sequence);
    this.#removeEmpty();
    return isRemoved;
  }

  /** Iterates over the sequences that wait for a slot. */
  *[Symbol.iterator](): Generator<S> {
    yield* this.#front;
    for (const { queue } of this.#queues) yield* queue;
  }

  /**
   * Checks that every sequence is only in the collection for its state, and has no slot and no computed tokens. Throws
   * if not.
   */
  checkIntegrity(): void {
    for (const { queue } of this.#queues) queue.checkIntegrity();
    if (this.#queues.some(({ queue }) => queue.size === 0)) throw new Error("a queue is kept though it is empty");
    const waiting = [...this];
    if (waiting.length !== this.size) throw new Error(`${waiting.length} wait, ${this.size} counted`);
    for (const one of [...waiting, ...this.preempted]) {
      const state = this.preempted.has(one) ? "preempted" : "waiting";
      const isRight = one.state === state && one.isPaused === (state === "preempted") && !one.blockedBy.has("prefix");
      if (!isRight || one.slot !== -1 || one.computed !== 0) {
        throw new Error(`${state}: ${one.state}, slot ${one.slot}, ${one.computed} computed, ${[...one.blockedBy]}`);
      }
    }
    this.#shares.checkIntegrity([...waiting, ...this.preempted].filter(mayBeDisplaced).map(({ client }) => client));
  }

  /** Yields the sequences that lack memory and the next sequence of each client in each queue, by priority. */
  *#byPriority(): Generator<S> {
    let at = 0;
    for (const { priority, queue } of this.#queues) {
      for (; (this.#front[at]?.priority ?? Infinity) <= priority; at++) yield this.#front[at] as S;
      yield* queue.next();
    }
    yield* this.#front.slice(at);
  }

  #count(sequence: S): void {
    if (mayBeDisplaced(sequence)) this.#shares.add(sequence.client);
  }

  #uncount(sequence: S): void {
    if (mayBeDisplaced(sequence)) this.#shares.remove(sequence.client);
  }

  /**
   * Yields the sequences of a client that may lose their places in the queue, one request at a time. Sequences
   * preempted for slow reading come first, most recent first. Queued sequences follow, lowest priority and newest
   * first. Only two kinds may lose their places: requests that have not begun, and sequences queued again after a
   * preemption for slow reading.
   */
  *#newestRequests(client: string): Generator<readonly S[]> {
    const preempted = [...this.preempted].reverse().filter((one) => one.client === client);
    yield* byRequest(preempted).values();
    for (const { queue } of this.#queues.toReversed()) {
      const displaceable = [...queue.newestOf(client)].filter(
        ({ request, wasPreempted }) => !request.hasBegun || wasPreempted,
      );
      yield* byRequest(displaceable).values();
    }
  }

  #removeFront(sequence: S): boolean {
    const at = this.#front.indexOf(sequence);
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

function byRequest<S extends Sequence>(sequences: readonly S[]): Map<SequenceRequest, S[]> {
  const requests = new Map<SequenceRequest, S[]>();
  for (const one of sequences) {
    const request = requests.get(one.request);
    if (request === undefined) requests.set(one.request, [one]);
    else request.push(one);
  }
  return requests;
}

/**
 * Whether a sequence may lose its place in the queue: it has never had a slot, or it was preempted because of a slow
 * client and has had no slot since then.
 */
function mayBeDisplaced({ order, wasPreempted }: Sequence): boolean {
  return order === 0 || wasPreempted;
}

/** Sort key: sequences that have had a slot come first, in order of first admission. */
function rankOf({ order }: Sequence): number {
  return order === 0 ? Number.MAX_SAFE_INTEGER : order;
}
