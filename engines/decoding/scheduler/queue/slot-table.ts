// SlotTable: which slots are free, and which sequences hold the others. Used by SlotManager only.
import { mattersLess, type Sequence } from "../sequence.ts";

export class SlotTable<S extends Sequence> {
  /** Longest there first. */
  readonly running: S[] = [];
  readonly #count: number;
  /** Lowest slot last, so that pop() gives it. */
  readonly #free: number[];

  constructor(count: number) {
    this.#count = count;
    this.#free = Array.from({ length: count }, (_, i) => count - 1 - i);
  }

  get freeCount(): number {
    return this.#free.length;
  }

  /** Gives a sequence the lowest free slot. */
  give(sequence: S): void {
    sequence.slot = this.#free.pop() as number;
    sequence.state = "running";
    const before = this.running.findIndex(({ order }) => sequence.order > 0 && order > sequence.order);
    this.running.splice(before < 0 ? this.running.length : before, 0, sequence);
  }

  /** Takes a sequence's slot back; what it has computed is gone. */
  take(sequence: S): void {
    this.running.splice(this.running.indexOf(sequence), 1);
    this.#free.push(sequence.slot);
    this.#free.sort((a, b) => b - a);
    sequence.slot = -1;
    sequence.sharedPrefixOwner = null;
    sequence.computed = 0;
    sequence.draftCount = 0;
  }

  /** Of the running sequences that a step leaves out, the one that matters least, if it matters less than another. */
  leastImportant(than: S, step: number): S | null {
    let least = than;
    for (const one of this.running) {
      if (one.step === step || one.sharedPrefixOwner !== null) continue;
      if (mattersLess(one, least)) least = one;
    }
    return least === than ? null : least;
  }

  longestPaused(): S | null {
    let longest: S | null = null;
    for (const sequence of this.running) {
      if (sequence.paused && (longest === null || sequence.pausedMs < longest.pausedMs)) longest = sequence;
    }
    return longest;
  }

  /** Throws if the books do not balance: slots free + used = total, none twice. */
  checkIntegrity(): void {
    const slots = [...this.#free, ...this.running.map(({ slot }) => slot)].sort((a, b) => a - b);
    const balanced = slots.length === this.#count && slots.every((slot, i) => slot === i);
    if (!balanced) throw new Error(`slots do not balance: ${slots.join(",")}`);
    for (const { state, slot } of this.running)
      if (state !== "running") throw new Error(`slot ${slot} is held by a sequence that is ${state}`);
  }
}
