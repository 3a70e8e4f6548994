// Owns who holds a slot: which sequences wait for one, which run, and which are parked because their readers are behind.
// Used by the scheduler only, which decides what the running ones feed. It is told the time; it never looks at a clock.
import type { KvCache } from "../engine.ts";
import { FairQueue } from "./fair-queue.ts";
import type { PrefixCache } from "./prefix-cache.ts";
import { queueFull } from "./queue-full.ts";
import type { Sequence } from "./sequence.ts";

export interface QueueLimits {
  /** Sequences that may be without a slot: those that wait for one, and those that are parked. */
  readonly maxQueue: number;
  /** How long a request may wait for its first slot; 0 = as long as it takes. */
  readonly queueTimeoutMs: number;
}

/** A pause shorter than this is jitter on the way to the reader: it does not cost a sequence its slot. */
export const pauseGraceMs = 100;
/** After a longer one it does, though nobody waits: a slot that stands still among others may cost an engine a row a step. */
export const longestPauseMs = 2000;

export class Admission<S extends Sequence> {
  readonly waiting = new FairQueue<S>();
  readonly parked = new Set<S>();
  /** In order of admission. */
  readonly running: S[] = [];
  /** How often a paused sequence has lost its slot. */
  preemptionCount = 0;
  readonly #slotCount: number;
  readonly #kv: KvCache;
  readonly #prefixes: PrefixCache;
  readonly #limits: QueueLimits;
  /** Lowest slot last, so that pop() gives it. */
  readonly #freeSlots: number[];
  #nowMs = 0;

  constructor(slotCount: number, kv: KvCache, prefixes: PrefixCache, limits: QueueLimits) {
    this.#slotCount = slotCount;
    this.#kv = kv;
    this.#prefixes = prefixes;
    this.#limits = limits;
    this.#freeSlots = Array.from({ length: slotCount }, (_, i) => slotCount - 1 - i);
  }

  /** When the passing of time alone changes something; Infinity if it does not. */
  get nextChangeMs(): number {
    const oldest = this.waiting.oldest;
    const expiryMs = oldest === undefined ? Infinity : oldest.queuedMs + this.#limits.queueTimeoutMs;
    const paused = this.#longestPaused();
    const allowedMs = this.waiting.size === 0 ? longestPauseMs : pauseGraceMs;
    const preemptionMs = paused === null ? Infinity : paused.pausedMs + allowedMs;
    return Math.min(expiryMs, preemptionMs);
  }

  /** Tells the time. Returns the sequences that have waited too long for their first slot; they are finished. */
  advance(nowMs: number): readonly S[] {
    this.#nowMs = nowMs;
    while (this.#preempt(longestPauseMs));
    const expired: S[] = [];
    for (;;) {
      const oldest = this.waiting.oldest;
      if (oldest === undefined || nowMs - oldest.queuedMs < this.#limits.queueTimeoutMs) return expired;
      this.finish(oldest);
      expired.push(oldest);
    }
  }

  /** Queues a sequence. Throws `queue_full`. */
  add(sequence: S): void {
    if (this.#slotlessCount >= this.#slotlessLimit) throw queueFull(this.#limits.maxQueue);
    sequence.queuedMs = this.#nowMs;
    this.waiting.add(sequence, sequence.hasQueueLimit && this.#limits.queueTimeoutMs > 0);
  }

  /** Gives out slots: first those that are free, then those of sequences whose readers have been behind for a while. */
  admit(): void {
    while (this.waiting.size > 0) {
      if (this.#freeSlots.length === 0 && !this.#preempt(pauseGraceMs)) return;
      const sequence = this.waiting.take() as S;
      sequence.slot = this.#freeSlots.pop() as number;
      sequence.state = "running";
      sequence.computed = this.#prefixes.restore(sequence);
      this.running.push(sequence);
    }
  }

  setPaused(sequence: S, paused: boolean): void {
    if (sequence.paused === paused) return;
    sequence.paused = paused;
    sequence.pausedMs = this.#nowMs;
    if (paused && sequence.state === "waiting") {
      this.waiting.remove(sequence);
      this.#park(sequence);
    } else if (!paused && sequence.state === "parked") {
      this.parked.delete(sequence);
      sequence.state = "waiting";
      this.waiting.putBack(sequence);
    }
  }

  /** Ends a sequence in any state. The engine forgets it at once. */
  finish(sequence: S): void {
    if (sequence.state === "running") this.#releaseSlot(sequence);
    else if (sequence.state === "waiting") this.waiting.remove(sequence);
    else if (sequence.state === "parked") this.parked.delete(sequence);
    sequence.state = "finished";
  }

  /** Throws if the books do not balance: slots free + used = total, none twice, everyone in the one place of his state. */
  checkIntegrity(): void {
    const slots = [...this.#freeSlots, ...this.running.map(({ slot }) => slot)].sort((a, b) => a - b);
    const balanced = slots.length === this.#slotCount && slots.every((slot, i) => slot === i);
    if (!balanced) throw new Error(`slots do not balance: ${slots.join(",")}`);
    for (const { state, slot } of this.running)
      if (state !== "running") throw new Error(`slot ${slot} is of a ${state}`);
    for (const { state, slot, computed, paused } of [...this.waiting, ...this.parked]) {
      const isRight = slot === -1 && computed === 0 && state === (paused ? "parked" : "waiting");
      if (!isRight) throw new Error(`without a slot: ${state}, paused ${paused}, slot ${slot}, ${computed} computed`);
    }
    if ([...this.parked].some(({ state }) => state !== "parked")) throw new Error("one that is parked is not");
    this.waiting.checkIntegrity();
    if (this.#slotlessCount > this.#slotlessLimit) throw new Error(`${this.#slotlessCount} sequences have no slot`);
  }

  get #slotlessCount(): number {
    return this.waiting.size + this.parked.size;
  }

  /** A sequence with a free slot ahead of it only waits for the next step: it does not count. */
  get #slotlessLimit(): number {
    return this.#limits.maxQueue + this.#freeSlots.length;
  }

  /** Takes the slot of the sequence that has been paused longest. False if none has been for so long. */
  #preempt(pausedForMs: number): boolean {
    const sequence = this.#longestPaused();
    if (sequence === null || this.#nowMs - sequence.pausedMs < pausedForMs) return false;
    this.#prefixes.keep(sequence);
    this.#releaseSlot(sequence);
    this.#park(sequence);
    this.preemptionCount++;
    return true;
  }

  #longestPaused(): S | null {
    let longest: S | null = null;
    for (const sequence of this.running) {
      if (sequence.paused && (longest === null || sequence.pausedMs < longest.pausedMs)) longest = sequence;
    }
    return longest;
  }

  #park(sequence: S): void {
    sequence.state = "parked";
    sequence.computed = 0;
    this.parked.add(sequence);
  }

  #releaseSlot(sequence: S): void {
    this.running.splice(this.running.indexOf(sequence), 1);
    this.#kv.release(sequence.slot);
    this.#freeSlots.push(sequence.slot);
    this.#freeSlots.sort((a, b) => b - a);
    sequence.slot = -1;
  }
}
