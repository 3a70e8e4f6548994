// Slot shares: counts the slots of each client and decides when a slot passes from one client to another. The sequence
// that is owed another client's slot is called the claimant. Callers pass in the time; this class reads no clock.
import { mattersLess, type Sequence } from "../sequence.ts";

/**
 * Maximum number of slots that pass between clients in one share period (`slotShareMs`), however many clients wait.
 * Chosen by hand.
 */
const changesPerPeriod = 16;
/**
 * Maximum number of times in one share period (`slotShareMs`) that the scheduler checks whether a client is owed a
 * slot. Chosen by hand.
 */
const looksPerPeriod = 64;
/** Waiting time of a client without any slot, as a fraction of the share period (`slotShareMs`). Chosen by hand. */
const firstSlotPart = 1 / 32;
/**
 * Minimum waiting time of a client before another client's sequence loses its slot and its KV, as a multiple of the
 * time to compute this KV again. After such a loss, the same time must pass before the next loss. So at most a ninth of
 * the time is spent on repeated prefills.
 */
const waitPerLoss = 8;

interface Client {
  /** Number of the client's sequences in the scheduler, with and without a slot. */
  sequences: number;
  slots: number;
  /** Time in ms at which the client last got a slot, or was made to wait for another period. */
  servedMs: number;
  /** Whether the client was postponed: its sequence did not fit although other clients gave up slots. */
  isPostponed: boolean;
}

/**
 * Fair sharing of slots between clients. A slot normally passes to another client when a sequence ends. Without a
 * share period, other clients would have to wait until the long outputs of one client end.
 *
 * A client's wait begins when its next sequence was queued or when the client last got a slot, whichever is later.
 * The client is owed a slot if it has waited for a share period and another client has at least two slots more. A
 * client without any slot waits only for a small fraction of the period. Then the least important sequence (see
 * mattersLess) of the client with the most slots loses its slot.
 *
 * The required difference of two slots prevents slots from moving back and forth: after the change, the client that
 * lost the slot is not owed one. The client with the fewest slots goes first, then the client that has waited
 * longest. So a client gets one slot in a period, and many new clients get their slots one after another. If each
 * client has only one slot, no sequence loses its slot. A new client then waits until a sequence ends, and after a
 * share period it is the first to get a free slot.
 *
 * Priorities of different clients are not compared, because a client could otherwise keep all slots by requesting a
 * high priority. Priorities decide which sequence of a client gets the slot.
 */
export class SlotShares<S extends Sequence> {
  readonly #periodMs: number;
  readonly #lossMs: (sequence: S) => number;
  readonly #clients = new Map<string, Client>();
  #nextLookMs = 0;
  #nextChangeMs = 0;
  /** Time in ms before which no sequence loses a slot if its KV would have to be computed again. */
  #nextLossMs = 0;

  /**
   * `periodMs`: share period; 0 = slots never pass between clients. `lossMs` returns the time in ms to compute the KV
   * of a sequence again; 0 if the KV can be kept.
   */
  constructor(periodMs: number, lossMs: (sequence: S) => number) {
    this.#periodMs = periodMs > 0 ? periodMs : Infinity;
    this.#lossMs = lossMs;
  }

  /** Counts a sequence that has entered the scheduler. */
  add({ client }: S): void {
    const known = this.#clients.get(client);
    if (known !== undefined) known.sequences++;
    else this.#clients.set(client, { sequences: 1, slots: 0, servedMs: -Infinity, isPostponed: false });
  }

  /** Stops counting a sequence that has left the scheduler. */
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

  /**
   * Makes the client of a claimant wait for another period, because the claimant did not fit
   * although other clients gave up slots.
   */
  postpone({ client }: S, nowMs: number): void {
    const known = this.#of(client);
    known.servedMs = nowMs;
    known.isPostponed = true;
  }

  /**
   * Returns the earliest time at which a sequence in `next` may be owed a slot if nothing else changes; Infinity:
   * never. `next`: the next sequence of each client.
   */
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

  /** Whether it is time to search for a claimant. */
  isDue(nowMs: number): boolean {
    return this.#periodMs !== Infinity && nowMs >= this.#nextLookMs && nowMs >= this.#nextChangeMs;
  }

  /**
   * Returns the claimant: the sequence of `next` that is owed another client's slot; null if there is none. `next`: the
   * next sequence of each client.
   */
  claimant(next: Iterable<S>, nowMs: number): S | null {
    this.#nextLookMs = nowMs + this.#periodMs / looksPerPeriod;
    const mostSlots = this.#mostSlots() - 2;
    const isOwed = (one: S): boolean =>
      this.#of(one.client).slots <= mostSlots && nowMs - this.#waitsSince(one) >= this.#waitMs(one);
    return first(next, isOwed, (one, other) => this.#isOwedMore(one, other));
  }

  /**
   * Returns the sequence of `next` that has waited for a whole period and is owed the next free slot, regardless
   * of priorities; null if there is none.
   */
  overdue(next: Iterable<S>, nowMs: number): S | null {
    const isOwed = (one: S): boolean => nowMs - this.#waitsSince(one) >= this.#periodMs;
    return this.#periodMs === Infinity ? null : first(next, isOwed, (one, other) => this.#isOwedMore(one, other));
  }

  /**
   * Returns all sequences that may lose their slots to a claimant: each client gives up slots only while it has at
   * least two slots more than the claimant's client.
   */
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

  /** Returns the running sequence that loses its slot to a claimant; null if none may. */
  victim(running: Iterable<S>, claimant: S, nowMs: number): S | null {
    const losesSooner = (one: S, other: S): boolean => {
      const difference = this.#of(one.client).slots - this.#of(other.client).slots;
      return difference === 0 ? mattersLess(one, other) : difference > 0;
    };
    return first(running, (one) => this.#canPreempt(one, claimant, nowMs), losesSooner);
  }

  /** Records that a sequence is about to lose its slot to a claimant. */
  onPreempt(sequence: S, nowMs: number): void {
    this.#nextChangeMs = nowMs + this.#periodMs / changesPerPeriod;
    const lossMs = this.#lossMs(sequence);
    if (lossMs > 0) this.#nextLossMs = nowMs + lossMs * waitPerLoss;
  }

  /** Throws unless the counts match the given sequences. */
  checkIntegrity(running: readonly S[], slotless: readonly S[]): void {
    const counted = new Map<string, Pick<Client, "sequences" | "slots">>();
    const count = ({ client }: S, slots: number): void => {
      const known = counted.get(client);
      counted.set(client, { sequences: (known?.sequences ?? 0) + 1, slots: (known?.slots ?? 0) + slots });
    };
    for (const one of running) count(one, 1);
    for (const one of slotless) count(one, 0);
    const isRight = [...this.#clients].every(([client, { sequences, slots }]) => {
      const found = counted.get(client);
      return found?.sequences === sequences && found.slots === slots;
    });
    if (counted.size !== this.#clients.size || !isRight) {
      throw new Error(`slots by client do not match: ${JSON.stringify([...this.#clients])}`);
    }
  }

  /**
   * Whether a sequence may lose its slot to a claimant. If the KV of the sequence would be lost, the claimant must have
   * waited for `waitPerLoss` times the time to compute this KV again.
   */
  #canPreempt(sequence: S, claimant: S, nowMs: number): boolean {
    if (this.#of(sequence.client).slots < this.#of(claimant.client).slots + 2) return false;
    const neededMs = this.#lossMs(sequence) * waitPerLoss;
    return neededMs === 0 || (nowMs >= this.#nextLossMs && nowMs - this.#waitsSince(claimant) >= neededMs);
  }

  /** Time in ms for which the client of a sequence waits before another client must give up a slot. */
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

/**
 * Returns the item that satisfies `isWanted` and comes first in the order of `comesBefore`; null if none satisfies it.
 */
function first<T>(
  items: Iterable<T>,
  isWanted: (item: T) => boolean,
  comesBefore: (one: T, other: T) => boolean,
): T | null {
  let found: T | null = null;
  for (const item of items) if (isWanted(item) && (found === null || comesBefore(item, found))) found = item;
  return found;
}
