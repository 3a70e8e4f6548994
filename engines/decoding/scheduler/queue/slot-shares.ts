// SlotShares: counts the slots of each client and decides when one of them changes hands. Used by SlotManager only; it is told
// the time and never looks at a clock.
import { mattersLess, type Sequence } from "../sequence.ts";

/** At most so many slots change hands in one share period, however many clients wait. */
const changesPerPeriod = 16;
/** A claimant is looked for so many times in a share period. */
const looksPerPeriod = 64;
/** A client without any slot waits for this part of a share period. */
const firstSlotPart = 1 / 32;
/**
 * A sequence whose KV cannot be kept is prefilled again. The client that gets its slot must have waited this many times as
 * long as that prefill takes, and the same time passes before the next such change. So at most a ninth of the time goes
 * into prefilling again.
 */
const waitPerLoss = 8;

interface Client {
  /** In the scheduler, with and without a slot. */
  sequences: number;
  slots: number;
  /** When it last got a slot, or the slots that others gave up were too little for it. */
  servedMs: number;
  /** It was the latter. */
  isPostponed: boolean;
}

/**
 * A slot normally changes hands when an answer ends. Without a share period, long answers of one client would keep others
 * waiting for as long as they last. A client waits from when its next sequence was queued, or from when it last got a
 * slot, whichever is later. It is owed a slot when it has waited for a period, or for a small part of one if it has no slot
 * at all, and another client has at least two slots more. Then a sequence of the client that has most gives its slot up: the
 * one that matters least, as for memory (see mattersLess).
 * With a difference of two the two clients are no further apart afterwards than before, so a slot that has changed hands
 * gives no one a claim to take it back. The client with the fewest slots goes first, then the one that waits longest. So a
 * client gets one slot in a period, and a burst of clients gets them one after another. Clients that have one slot each
 * never take turns within an answer: a newcomer waits for an answer to end, and after a period it is the first to get that
 * slot.
 *
 * Between clients priority does not count here: otherwise one client could keep all slots by asking for a high one. Within a
 * client it does: each claims for its next sequence by priority.
 */
export class SlotShares<S extends Sequence> {
  readonly #periodMs: number;
  readonly #lossMs: (sequence: S) => number;
  readonly #clients = new Map<string, Client>();
  #nextLookMs = 0;
  #nextChangeMs = 0;
  /** Until then no sequence loses KV that would have to be computed again. */
  #nextLossMs = 0;

  /** `periodMs`: 0 = no slot changes hands. `lossMs`: time to compute again what cannot be kept of a sequence's KV. */
  constructor(periodMs: number, lossMs: (sequence: S) => number) {
    this.#periodMs = periodMs > 0 ? periodMs : Infinity;
    this.#lossMs = lossMs;
  }

  /** A sequence is in the scheduler from here on, until remove(). */
  add({ client }: S): void {
    const known = this.#clients.get(client);
    if (known === undefined)
      this.#clients.set(client, { sequences: 1, slots: 0, servedMs: -Infinity, isPostponed: false });
    else known.sequences++;
  }

  remove({ client }: S): void {
    const known = this.#of(client);
    known.sequences--;
    if (known.sequences === 0) this.#clients.delete(client);
  }

  onSlotGiven({ client }: S, nowMs: number): void {
    const known = this.#of(client);
    known.slots++;
    known.servedMs = nowMs;
    known.isPostponed = false;
  }

  onSlotTaken({ client }: S): void {
    this.#of(client).slots--;
  }

  /** What others have given up was too little for it: its client waits for another period. */
  postpone({ client }: S, nowMs: number): void {
    const known = this.#of(client);
    known.servedMs = nowMs;
    known.isPostponed = true;
  }

  /** When time alone may give a slot to one of `next`, the next sequence of each client; Infinity if it cannot. */
  nextChangeMs(next: Iterable<S>): number {
    if (this.#periodMs === Infinity) return Infinity;
    const most = this.#mostSlots();
    let earliestMs = Infinity;
    for (const sequence of next) {
      if (this.#of(sequence.client).slots + 2 > most) continue;
      earliestMs = Math.min(earliestMs, this.#waitsSince(sequence) + this.#waitMs(sequence));
    }
    return Math.max(earliestMs, this.#nextLookMs, this.#nextChangeMs);
  }

  /** Whether it is time to look for a claimant. */
  isDue(nowMs: number): boolean {
    return this.#periodMs !== Infinity && nowMs >= this.#nextLookMs && nowMs >= this.#nextChangeMs;
  }

  /** Which of `next`, the next sequence of each client, is owed a slot; null where none is. */
  claimant(next: Iterable<S>, nowMs: number): S | null {
    this.#nextLookMs = nowMs + this.#periodMs / looksPerPeriod;
    const mostSlots = this.#mostSlots() - 2;
    return this.#mostOwed(
      next,
      (one) => this.#of(one.client).slots <= mostSlots && nowMs - this.#waitsSince(one) >= this.#waitMs(one),
    );
  }

  /** Which of `next` is to get a slot that is free, whatever the others' priority; null where none has waited for a period. */
  overdue(next: Iterable<S>, nowMs: number): S | null {
    if (this.#periodMs === Infinity) return null;
    return this.#mostOwed(next, (one) => nowMs - this.#waitsSince(one) >= this.#periodMs);
  }

  /** Whether a running sequence may lose its slot to a claimant. */
  #canPreempt(sequence: S, claimant: S, nowMs: number): boolean {
    if (this.#of(sequence.client).slots < this.#of(claimant.client).slots + 2) return false;
    const neededMs = this.#lossMs(sequence) * waitPerLoss;
    return neededMs === 0 || (nowMs >= this.#nextLossMs && nowMs - this.#waitsSince(claimant) >= neededMs);
  }

  /** All that may lose their slots to a claimant, until its client has as many as theirs but one. */
  victims(running: readonly S[], claimant: S, nowMs: number): S[] {
    const leastSlots = this.#of(claimant.client).slots + 1;
    const left = new Map<string, number>();
    return running
      .filter((one) => this.#canPreempt(one, claimant, nowMs))
      .sort((one, other) => (mattersLess(one, other) ? -1 : 1))
      .filter(({ client }) => {
        const slots = left.get(client) ?? this.#of(client).slots;
        left.set(client, slots - 1);
        return slots > leastSlots;
      });
  }

  /** The running sequence that is to lose its slot to a claimant; null where none may. */
  victim(running: Iterable<S>, claimant: S, nowMs: number): S | null {
    let victim: S | null = null;
    for (const one of running) {
      if (this.#canPreempt(one, claimant, nowMs) && (victim === null || this.#losesSooner(one, victim))) victim = one;
    }
    return victim;
  }

  /** A sequence is about to lose its slot to a claimant. */
  onPreempt(sequence: S, nowMs: number): void {
    this.#nextChangeMs = nowMs + this.#periodMs / changesPerPeriod;
    const lossMs = this.#lossMs(sequence);
    if (lossMs > 0) this.#nextLossMs = nowMs + lossMs * waitPerLoss;
  }

  /** Throws where the counts do not match the sequences. */
  checkIntegrity(running: Iterable<S>, slotless: Iterable<S>): void {
    const counts = new Map<string, { sequences: number; slots: number }>();
    const count = (client: string, slots: number) => {
      const known = counts.get(client) ?? { sequences: 0, slots: 0 };
      counts.set(client, { sequences: known.sequences + 1, slots: known.slots + slots });
    };
    for (const { client } of running) count(client, 1);
    for (const { client } of slotless) count(client, 0);
    const isRight = ([client, { sequences, slots }]: [string, Pick<Client, "sequences" | "slots">]) =>
      counts.get(client)?.sequences === sequences && counts.get(client)?.slots === slots;
    if (counts.size !== this.#clients.size || ![...this.#clients].every(isRight)) {
      throw new Error(`slots by client: ${JSON.stringify([...counts])}; counted ${JSON.stringify([...this.#clients])}`);
    }
  }

  #mostOwed(next: Iterable<S>, isOwed: (sequence: S) => boolean): S | null {
    let first: S | null = null;
    for (const sequence of next) {
      if (isOwed(sequence) && (first === null || this.#isOwedMore(sequence, first))) first = sequence;
    }
    return first;
  }

  /** How long its client waits before another one gives up a slot. */
  #waitMs({ client }: S): number {
    const { slots, isPostponed } = this.#of(client);
    return slots === 0 && !isPostponed ? this.#periodMs * firstSlotPart : this.#periodMs;
  }

  #waitsSince({ client, queuedMs }: S): number {
    return Math.max(queuedMs, this.#of(client).servedMs);
  }

  #isOwedMore(one: S, other: S): boolean {
    const difference = this.#of(one.client).slots - this.#of(other.client).slots;
    return difference === 0 ? this.#waitsSince(one) < this.#waitsSince(other) : difference < 0;
  }

  #losesSooner(one: S, other: S): boolean {
    const difference = this.#of(one.client).slots - this.#of(other.client).slots;
    return difference === 0 ? mattersLess(one, other) : difference > 0;
  }

  #mostSlots(): number {
    let most = 0;
    for (const { slots } of this.#clients.values()) most = Math.max(most, slots);
    return most;
  }

  #of(client: string): Client {
    const known = this.#clients.get(client);
    if (known === undefined) throw new Error(`client "${client}" has no sequence in the scheduler`);
    return known;
  }
}
