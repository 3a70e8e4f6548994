// Owns who holds a slot: which sequences wait for one, which run, and which are parked because their readers are behind.
// Used by the scheduler only, which decides what the running ones feed. It is told the time; it never looks at a clock.

import type { KvModel, PrefixCache } from "../kv/prefix-cache.ts";
import { KvAllocator } from "./kv-allocator.ts";
import { queueFull } from "./queue/queue-full.ts";
import { SlotShares } from "./queue/slot-shares.ts";
import { SlotTable } from "./queue/slot-table.ts";
import { WaitingQueue } from "./queue/waiting-queue.ts";
import type { Sequence, SequenceRequest } from "./sequence.ts";

export interface QueueLimits {
  /** Sequences that may be without a slot: those that wait for one, and those that are parked. */
  readonly maxQueue: number;
  /** How long a request may wait for its first slot; 0 = as long as it takes. */
  readonly queueTimeoutMs: number;
  /** How long a client waits for a slot before another one that has more gives one up; 0 = until an answer ends. */
  readonly slotShareMs: number;
  /** Bytes of KV of preempted sequences that may be kept; what is beyond is computed again. */
  readonly swapBytes: number;
}

/** A pause shorter than this is jitter on the way to the reader: it does not cost a sequence its slot. */
export const pauseGraceMs = 100;
/** After a longer one it does, though nobody waits: a slot that stands still among others may cost an engine a row a step. */
export const longestPauseMs = 2000;

export class SlotManager<S extends Sequence> {
  /** How often a paused sequence has lost its slot to one that waited, and any sequence to want of KV memory. */
  pausedPreemptions = 0;
  memoryPreemptions = 0;
  /** How often a sequence has lost its slot to a client that had fewer. */
  sharePreemptions = 0;
  readonly #slots: SlotTable<S>;
  readonly #prefixes: PrefixCache<S>;
  readonly #placement: KvAllocator<S>;
  readonly #limits: QueueLimits;
  readonly #queue = new WaitingQueue<S>();
  readonly #shares: SlotShares<S>;
  #nowMs = 0;
  #lastOrder = 0;

  /** `promptMs` estimates what it takes to compute so many tokens again. */
  constructor(model: KvModel, prefixes: PrefixCache<S>, limits: QueueLimits, promptMs: (tokens: number) => number) {
    this.#slots = new SlotTable(model.capacity.maxSequences);
    this.#prefixes = prefixes;
    this.#placement = new KvAllocator(model, prefixes, limits.swapBytes);
    this.#limits = limits;
    const lossMs = (sequence: S) => (this.#placement.canKeep(sequence) ? 0 : promptMs(sequence.computed));
    this.#shares = new SlotShares(limits.slotShareMs, lossMs);
  }

  /** Longest there first. */
  get running(): readonly S[] {
    return this.#slots.running;
  }

  get waitingCount(): number {
    return this.#queue.size;
  }

  get preemptedCount(): number {
    return this.#queue.parked.size;
  }

  /** When the passing of time alone changes something; Infinity if it does not. */
  get nextChangeMs(): number {
    const oldest = this.#queue.oldest;
    const expiryMs = oldest === undefined ? Infinity : oldest.queuedMs + this.#limits.queueTimeoutMs;
    const paused = this.#slots.longestPaused();
    const allowedMs = this.waitingCount === 0 ? longestPauseMs : pauseGraceMs;
    const preemptionMs = paused === null ? Infinity : paused.pausedMs + allowedMs;
    const shareMs = this.waitingCount === 0 ? Infinity : this.#shares.nextChangeMs(this.#queue.next());
    return Math.min(expiryMs, preemptionMs, shareMs);
  }

  /** Tells the time. Returns the sequences that have waited too long for their first slot; they are finished. */
  advance(nowMs: number): readonly S[] {
    this.#nowMs = nowMs;
    while (this.#preemptPaused(longestPauseMs));
    const expired: S[] = [];
    for (;;) {
      const oldest = this.#queue.oldest;
      if (oldest === undefined || nowMs - oldest.queuedMs < this.#limits.queueTimeoutMs) return expired;
      this.finish(oldest);
      expired.push(oldest);
    }
  }

  /**
   * Queues sequences of one request, all or none. Returns those of other clients that gave their places up, waiting ones and
   * parked ones; they are finished. Throws `queue_full`.
   */
  add(sequences: readonly S[], request: SequenceRequest): readonly S[] {
    const free = this.#slotlessLimit - this.#slotlessCount;
    const displaced = this.#queue.displacedBy(sequences[0]?.client ?? "", sequences.length, free);
    if (displaced === null) throw queueFull(this.#limits.maxQueue);
    for (const sequence of displaced) this.finish(sequence);
    for (const sequence of sequences) {
      sequence.request = request;
      sequence.queuedMs = this.#nowMs;
      this.#queue.add(sequence, this.#hasLimit(sequence));
      this.#shares.add(sequence);
    }
    return displaced;
  }

  /**
   * Gives out slots: first those that are free, then those of sequences whose readers have been behind for a while, then
   * one of a client that has more than another which has waited for its share.
   */
  admit(): void {
    this.#wake();
    while (this.waitingCount > 0) {
      if (this.#slots.freeCount === 0 && !this.#preemptPaused(pauseGraceMs)) break;
      const sequence = this.#takeNext();
      if (this.#start(sequence)) continue;
      this.#toFront(sequence);
      if (!this.#preemptPaused(pauseGraceMs)) break;
    }
    if (this.#shares.isDue(this.#nowMs) && this.waitingCount > 0) this.#share();
  }

  /**
   * Makes room for `tokens` tokens of a running sequence that is fed in step `step`: what is cached goes first, then
   * sequences that matter less and are not part of the step. False where that is not enough.
   */
  reserve(sequence: S, tokens: number, step: number): boolean {
    while (!this.#placement.reserve(sequence, tokens, sequence.computed)) {
      const victim = this.#slots.leastImportant(sequence, step);
      if (victim === null) return false;
      this.#preemptForMemory(victim);
    }
    return true;
  }

  /** The same for a draft: nobody makes room for it. */
  reserveFree(sequence: S, tokens: number): boolean {
    return this.#placement.reserveFree(sequence, tokens);
  }

  setPaused(sequence: S, paused: boolean): void {
    if (sequence.paused === paused) return;
    sequence.paused = paused;
    sequence.pausedMs = this.#nowMs;
    if (paused && sequence.state === "waiting") this.#park(sequence);
    else if (!paused && sequence.state === "parked") {
      this.#queue.remove(sequence);
      this.#putBack(sequence);
    }
  }

  /** Ends a sequence in any state. The engine forgets it at once. */
  finish(sequence: S): void {
    const { state } = sequence;
    if (state === "finished") return;
    if (state === "running") this.#takeSlot(sequence);
    const isKnown = state === "running" || this.#queue.remove(sequence);
    if (isKnown) this.#shares.remove(sequence);
    this.#placement.forget(sequence);
    sequence.state = "finished";
  }

  /** Throws if the slots do not balance, or where a sequence is not in the one collection of its state. */
  checkIntegrity(): void {
    this.#slots.checkIntegrity();
    const waiting = [...this.#queue];
    const { parked } = this.#queue;
    if (waiting.length !== this.waitingCount) throw new Error(`${waiting.length} wait, ${this.waitingCount} counted`);
    for (const { state, slot, computed, paused, sharedPrefixOwner } of [...waiting, ...parked]) {
      const isRight =
        slot === -1 && computed === 0 && sharedPrefixOwner === null && state === (paused ? "parked" : "waiting");
      if (!isRight) throw new Error(`without a slot: ${state}, paused ${paused}, slot ${slot}, ${computed} computed`);
    }
    if ([...parked].some(({ state }) => state !== "parked")) throw new Error("one that is parked is not");
    this.#queue.checkIntegrity();
    this.#shares.checkIntegrity(this.running, [...waiting, ...parked]);
    this.#placement.checkIntegrity([...waiting, ...parked]);
    if (this.#slotlessCount > this.#slotlessLimit) throw new Error(`${this.#slotlessCount} sequences have no slot`);
  }

  get #slotlessCount(): number {
    return this.waitingCount + this.preemptedCount;
  }

  /** A sequence with a free slot ahead of it only waits for the next step: it does not count. */
  get #slotlessLimit(): number {
    return this.#limits.maxQueue + this.#slots.freeCount;
  }

  #hasLimit(sequence: S): boolean {
    return sequence.hasQueueLimit && this.#limits.queueTimeoutMs > 0;
  }

  /** Gives a sequence a free slot and its KV. False, and it has neither, where there is too little memory. */
  #start(sequence: S): boolean {
    this.#slots.give(sequence);
    if (!this.#placement.place(sequence)) {
      this.#slots.take(sequence);
      return false;
    }
    if (sequence.order === 0) sequence.order = ++this.#lastOrder;
    sequence.request.hasBegun = true;
    sequence.wasParked = false;
    this.#prefixes.addRunning(sequence);
    this.#shares.onSlotGiven(sequence, this.#nowMs);
    return true;
  }

  /** Takes the next of those that wait: by priority, but ahead of all a client that has waited for its share (see SlotShares). */
  #takeNext(): S {
    const overdue = this.#queue.hasPriorities ? this.#shares.overdue(this.#queue.next(), this.#nowMs) : null;
    if (overdue === null) return this.#queue.take() as S;
    this.#queue.takeAhead(overdue);
    return overdue;
  }

  /** Gives a client that is owed a slot (see SlotShares) one of another's, or as many as its KV memory takes. */
  #share(): void {
    const nowMs = this.#nowMs;
    const claimant = this.#shares.claimant(this.#queue.next(), nowMs);
    if (claimant === null) return;
    const victims = this.#shares.victims(this.running, claimant, nowMs);
    if (victims.length === 0 || !this.#placement.canFit(claimant, victims)) return;
    this.#queue.takeAhead(claimant);
    while (this.#slots.freeCount === 0 || !this.#start(claimant)) {
      const victim = this.#shares.victim(this.running, claimant, nowMs);
      if (victim === null) {
        this.#postpone(claimant);
        return;
      }
      this.#preemptForShare(victim);
    }
  }

  /** What others have given up is not enough: it waits for another period before they are asked again. */
  #postpone(claimant: S): void {
    this.#toFront(claimant);
    this.#shares.postpone(claimant, this.#nowMs);
  }

  /** Those whose source has computed what they waited for, or never will, go on. */
  #wake(): void {
    for (const sequence of [...this.running]) {
      const { sharedPrefixOwner } = sequence;
      if (
        sharedPrefixOwner === null ||
        (sharedPrefixOwner.isRunnableOrWaits && sharedPrefixOwner.computed < sequence.sharedPrefixTokens)
      )
        continue;
      sequence.sharedPrefixOwner = null;
      if (this.#placement.place(sequence)) continue;
      this.#takeSlot(sequence);
      this.#toFront(sequence);
    }
  }

  #preemptForShare(sequence: S): void {
    this.#shares.onPreempt(sequence, this.#nowMs);
    this.#placement.swapOut(sequence);
    if (sequence.swapped === null) this.#prefixes.keep(sequence);
    this.#takeSlot(sequence);
    if (sequence.paused) this.#park(sequence);
    else this.#putBack(sequence);
    this.sharePreemptions++;
  }

  #preemptForMemory(sequence: S): void {
    this.#placement.swapOut(sequence);
    this.#takeSlot(sequence);
    sequence.queuedMs = this.#nowMs;
    this.#toFront(sequence);
    this.memoryPreemptions++;
  }

  /** There is no memory for it: it is the next to get some, unless its reader is behind. */
  #toFront(sequence: S): void {
    if (sequence.paused) {
      this.#park(sequence);
      return;
    }
    sequence.state = "waiting";
    this.#queue.addFront(sequence, sequence.order === 0 && this.#hasLimit(sequence));
  }

  /** It is its client's next. */
  #putBack(sequence: S): void {
    sequence.state = "waiting";
    sequence.queuedMs = this.#nowMs;
    this.#queue.putBack(sequence);
  }

  /** Takes the slot of the sequence that has been paused longest. False if none has been for so long. */
  #preemptPaused(pausedForMs: number): boolean {
    const sequence = this.#slots.longestPaused();
    if (sequence === null || this.#nowMs - sequence.pausedMs < pausedForMs) return false;
    this.#prefixes.keep(sequence);
    this.#takeSlot(sequence);
    this.#park(sequence);
    this.pausedPreemptions++;
    return true;
  }

  #park(sequence: S): void {
    sequence.state = "parked";
    this.#queue.park(sequence);
  }

  #takeSlot(sequence: S): void {
    this.#shares.onSlotTaken(sequence);
    this.#prefixes.removeRunning(sequence);
    this.#placement.release(sequence);
    this.#slots.take(sequence);
  }
}
