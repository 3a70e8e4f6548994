// Waiting queue: the sequences without a slot. Those that wait are served by priority, lower numbers first; within a
// priority, sequences that lacked KV memory come first, oldest first, then clients take turns, each with its preempted
// sequences first. next() and takeAhead() serve clients that are owed a slot, whose sequences pass those of others whatever
// the priority. Sequences preempted for their readers stand beside the queue; their places count for their clients, too.
import { FairQueue } from "../../../../runtime/queues/fair-queue.ts";
import { QueueShares } from "../../../../runtime/queues/queue-shares.ts";
import type { Sequence, SequenceRequest } from "../sequence.ts";

interface Front<S> {
  readonly sequence: S;
  readonly hasLimit: boolean;
}

export class WaitingQueue<S extends Sequence> {
  /** Preempted for their readers, the latest last. */
  readonly preempted = new Set<S>();
  /** Sequences that had their turn but lacked KV memory; sorted. */
  readonly #front: Front<S>[] = [];
  /** Sorted by priority; none is empty. */
  readonly #queues: { readonly priority: number; readonly queue: FairQueue<S> }[] = [];
  /** Counts the sequences whose places others may take (see mayBeDisplaced). */
  readonly #shares = new QueueShares();

  /** Sequences that wait for a slot. */
  get size(): number {
    return this.#queues.reduce((sum, { queue }) => sum + queue.size, this.#front.length);
  }

  /** The sequence that waits longest among those whose wait has a limit. */
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
   * The sequences that lose their places to `count` more of a client if `free` places are left; null if too few can. They
   * are still here.
   */
  displacedBy(client: string, count: number, free: number): readonly S[] | null {
    return this.#shares.displacedBy(client, count, free, (other) => this.#newestRequests(other));
  }

  add(sequence: S, hasLimit: boolean): void {
    this.#count(sequence);
    this.#queueOf(sequence.priority).add(sequence, hasLimit);
  }

  /** Adds a sequence ahead of all others of its client; its wait has no limit any more. */
  putBack(sequence: S): void {
    this.#count(sequence);
    this.#queueOf(sequence.priority).putBack(sequence);
  }

  /** Adds a sequence that lacks KV memory ahead of all others of its priority. */
  addFront(sequence: S, hasLimit: boolean): void {
    this.#count(sequence);
    this.#front.push({ sequence, hasLimit });
    this.#front.sort(({ sequence: a }, { sequence: b }) => a.priority - b.priority || rankOf(a) - rankOf(b));
  }

  /** Adds a sequence whose reader is behind, or takes it out of the queue. */
  addPreempted(sequence: S): void {
    this.remove(sequence);
    sequence.wasPreempted = true;
    this.preempted.add(sequence);
    this.#count(sequence);
  }

  take(): S | undefined {
    const first = this.#front[0]?.sequence;
    const next = this.#queues[0];
    const isFront = first !== undefined && first.priority <= (next?.priority ?? Infinity);
    const taken = isFront ? this.#front.shift()?.sequence : next?.queue.take();
    this.#removeEmpty();
    if (taken !== undefined) this.#uncount(taken);
    return taken;
  }

  /** Whether waiting sequences differ in priority. */
  get hasPriorities(): boolean {
    const one = this.#queues[0]?.priority ?? this.#front[0]?.sequence.priority;
    return this.#queues.length > 1 || this.#front.some(({ sequence }) => sequence.priority !== one);
  }

  /** The next sequence of each client, its first by priority. O(clients), times the priorities of each. */
  *next(): Generator<S> {
    const clients = new Set<string>();
    for (const sequence of this.#byPriority()) {
      if (clients.has(sequence.client)) continue;
      clients.add(sequence.client);
      yield sequence;
    }
  }

  /** Takes one of next() ahead of all others, as its client's turn. */
  takeAhead(sequence: S): void {
    if (!this.#removeFront(sequence)) this.#find(sequence)?.takeAhead(sequence);
    this.#removeEmpty();
    this.#uncount(sequence);
  }

  /** Removes a waiting or preempted sequence. False if it is not here. */
  remove(sequence: S): boolean {
    const isRemoved =
      this.preempted.delete(sequence) || this.#removeFront(sequence) || this.#find(sequence)?.remove(sequence) === true;
    if (isRemoved) this.#uncount(sequence);
    this.#removeEmpty();
    return isRemoved;
  }

  /** The sequences that wait for a slot. */
  *[Symbol.iterator](): Generator<S> {
    for (const { sequence } of this.#front) yield sequence;
    for (const { queue } of this.#queues) yield* queue;
  }

  /** Throws unless every sequence is in the one collection of its state, without a slot and without KV. */
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

  /** Sequences that lack memory and the next of each client in each queue, by priority. */
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
   * What a client may lose, request by request: first preempted sequences, the latest first; then sequences that have not
   * begun or were preempted, the least important priority first and the newest first.
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

function byRequest<S extends Sequence>(sequences: readonly S[]): Map<SequenceRequest, S[]> {
  const requests = new Map<SequenceRequest, S[]>();
  for (const one of sequences) {
    const request = requests.get(one.request);
    if (request === undefined) requests.set(one.request, [one]);
    else request.push(one);
  }
  return requests;
}

/** It has had no slot yet, or none since it was preempted for its reader. */
function mayBeDisplaced({ order, wasPreempted }: Sequence): boolean {
  return order === 0 || wasPreempted;
}

/** Sequences that ran come first, the earliest first. */
function rankOf({ order }: Sequence): number {
  return order === 0 ? Number.MAX_SAFE_INTEGER : order;
}
