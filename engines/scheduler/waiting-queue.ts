// Owns everyone who waits for a slot, by priority: the lower the number, the sooner. Within one priority those that had to
// give their slot back come first, oldest first, then the one there was too little memory for, then clients in turns. Used
// by Admission only.
import { FairQueue } from "../../runtime/fair-queue.ts";
import type { Sequence } from "./sequence.ts";

interface Front<S> {
  readonly sequence: S;
  readonly hasLimit: boolean;
}

export class WaitingQueue<S extends Sequence> {
  /** Those that had their turn, but there was no room for them, or no longer; sorted. */
  readonly #front: Front<S>[] = [];
  /** Sorted by priority; a queue goes when it is empty. */
  readonly #queues: { readonly priority: number; readonly queue: FairQueue<S> }[] = [];

  get size(): number {
    return this.#queues.reduce((sum, { queue }) => sum + queue.size, this.#front.length);
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

  add(sequence: S, hasLimit: boolean): void {
    this.#queueOf(sequence.priority).add(sequence, hasLimit);
  }

  /** Puts one that was here before ahead of all others of its client; its wait has no limit any more. */
  putBack(sequence: S): void {
    this.#queueOf(sequence.priority).putBack(sequence);
  }

  /** Puts one that cannot have a slot, or not keep it, for want of memory ahead of all others of its priority. */
  addFront(sequence: S, hasLimit: boolean): void {
    this.#front.push({ sequence, hasLimit });
    this.#front.sort(({ sequence: a }, { sequence: b }) => a.priority - b.priority || placeOf(a) - placeOf(b));
  }

  take(): S | undefined {
    const first = this.#front[0]?.sequence;
    const next = this.#queues[0];
    if (first !== undefined && first.priority <= (next?.priority ?? Number.POSITIVE_INFINITY)) {
      this.#front.shift();
      return first;
    }
    const taken = next?.queue.take();
    this.#removeEmpty();
    return taken;
  }

  /** Does nothing if it does not wait here. */
  remove(sequence: S): void {
    const at = this.#front.findIndex((one) => one.sequence === sequence);
    if (at >= 0) this.#front.splice(at, 1);
    else this.#queues.find(({ priority }) => priority === sequence.priority)?.queue.remove(sequence);
    this.#removeEmpty();
  }

  *[Symbol.iterator](): Generator<S> {
    for (const { sequence } of this.#front) yield sequence;
    for (const { queue } of this.#queues) yield* queue;
  }

  checkIntegrity(): void {
    for (const { queue } of this.#queues) queue.checkIntegrity();
    if (this.#queues.some(({ queue }) => queue.size === 0)) throw new Error("a queue is kept though it is empty");
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

/** Those that ran come first, the longest ago first. */
function placeOf({ order }: Sequence): number {
  return order === 0 ? Number.MAX_SAFE_INTEGER : order;
}
