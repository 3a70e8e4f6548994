// Slot shares: counts the slots of each client and decides when a slot passes from one client to another. It is told the
// time and reads no clock.
import { mattersLess, type Sequence } from "../sequence.ts";

/** Most slots that change hands in one share period, however many clients wait. Chosen by hand. */
const changesPerPeriod = 16;
/** Looks for a claimant in one share period. Chosen by hand. */
const looksPerPeriod = 64;
/** The part of a share period that a client without any slot waits. Chosen by hand. */
const firstSlotPart = 1 / 32;
/**
 * A sequence whose KV cannot be kept is prefilled again. The client that gets its slot must have waited this many times as
 * long as that prefill takes, and the same time passes before the next such change. So at most a ninth of the time is spent
 * on prefilling again.
 */
const waitPerLoss = 8;

interface Client {
  /** In the scheduler, with and without a slot. */
  sequences: number;
  slots: number;
  /** When it last got a slot, or was postponed. */
  servedMs: number;
  /** The slots that others gave up were too few for it. */
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

  /** A sequence has entered the scheduler. */
  add({ client }: S): void {
    const known = this.#clients.get(client);
    if (known !== undefined) known.sequences++;
    else this.#clients.set(client, { sequences: 1, slots: 0, servedMs: -Infinity, isPostponed: false });
  }

  /** A sequence has left the scheduler. */
  remove({ client }: S): void {
    if (--this.#of(client).sequences === 0) this.#clients.delete(client);
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

  /** What others gave up was too little for a claimant: its client waits for another period. */
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
    for (const one of next) {
      if (this.#of(one.client).slots + 2 > most) continue;
      earliestMs = Math.min(earliestMs, this.#waitsSince(one) + this.#waitMs(one));
    }
    return Math.max(earliestMs, this.#nextLookMs, this.#nextChangeMs);
  }

  /** Whether it is time to look for a claimant. */
  isDue(nowMs: number): boolean {
    return this.#periodMs !== Infinity && nowMs >= this.#nextLookMs && nowMs >= this.#nextChangeMs;
  }

  /** Which of `next`, the next sequence of each client, is owed another client's slot; null if none is. */
  claimant(next: Iterable<S>, nowMs: number): S | null {
    this.#nextLookMs = nowMs + this.#periodMs / looksPerPeriod;
    const mostSlots = this.#mostSlots() - 2;
    const isOwed = (one: S): boolean =>
      this.#of(one.client).slots <= mostSlots && nowMs - this.#waitsSince(one) >= this.#waitMs(one);
    return first(next, isOwed, (one, other) => this.#isOwedMore(one, other));
  }

  /** Which of `next` is owed the next free slot, whatever the others' priority; null if none has waited for a period. */
  overdue(next: Iterable<S>, nowMs: number): S | null {
    const isOwed = (one: S): boolean => nowMs - this.#waitsSince(one) >= this.#periodMs;
    return this.#periodMs === Infinity ? null : first(next, isOwed, (one, other) => this.#isOwedMore(one, other));
  }

  /** All sequences that may lose their slots to a claimant, until its client has as many as theirs but one. */
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

  /** The running sequence that loses its slot to a claimant; null if none may. */
  victim(running: Iterable<S>, claimant: S, nowMs: number): S | null {
    const losesSooner = (one: S, other: S): boolean => {
      const difference = this.#of(one.client).slots - this.#of(other.client).slots;
      return difference === 0 ? mattersLess(one, other) : difference > 0;
    };
    return first(running, (one) => this.#canPreempt(one, claimant, nowMs), losesSooner);
  }

  /** A sequence is about to lose its slot to a claimant. */
  onPreempt(sequence: S, nowMs: number): void {
    this.#nextChangeMs = nowMs + this.#periodMs / changesPerPeriod;
    const lossMs = this.#lossMs(sequence);
    if (lossMs > 0) this.#nextLossMs = nowMs + lossMs * waitPerLoss;
  }

  /** Throws unless the counts match the sequences. */
  checkIntegrity(running: readonly S[], slotless: readonly S[]): void {
    const all = [...running, ...slotless];
    const isRight = ([client, { sequences, slots }]: [string, Client]): boolean =>
      all.filter((one) => one.client === client).length === sequences &&
      running.filter((one) => one.client === client).length === slots;
    if (all.some(({ client }) => !this.#clients.has(client)) || ![...this.#clients].every(isRight)) {
      throw new Error(`slots by client do not match: ${JSON.stringify([...this.#clients])}`);
    }
  }

  /** Not before the claimant has waited long enough for what is lost. */
  #canPreempt(sequence: S, claimant: S, nowMs: number): boolean {
    if (this.#of(sequence.client).slots < this.#of(claimant.client).slots + 2) return false;
    const neededMs = this.#lossMs(sequence) * waitPerLoss;
    return neededMs === 0 || (nowMs >= this.#nextLossMs && nowMs - this.#waitsSince(claimant) >= neededMs);
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

/** The first of `items` in the order of `comesBefore` that satisfies `isWanted`; null if none does. */
function first<T>(
  items: Iterable<T>,
  isWanted: (item: T) => boolean,
  comesBefore: (one: T, other: T) => boolean,
): T | null {
  let found: T | null = null;
  for (const item of items) if (isWanted(item) && (found === null || comesBefore(item, found))) found = item;
  return found;
}
