// Slot table: records which sequence holds which slot of the engine, and decides which sequence loses its slot first.
import { mattersLess, type Sequence } from "./sequence.ts";

export class SlotTable<S extends Sequence> {
  /** Running sequences, in order of first admission. */
  readonly running: S[] = [];
  readonly #count: number;
  /** Free slots in descending order, so that pop() returns the lowest. */
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

  /** Removes a sequence from its slot and resets its computed tokens and draft. */
  take(sequence: S): void {
    this.running.splice(this.running.indexOf(sequence), 1);
    this.#free.push(sequence.slot);
    this.#free.sort((a, b) => b - a);
    sequence.slot = -1;
    sequence.blockedBy.delete("prefix");
    sequence.sharedPrefixOwner = null;
    sequence.computed = 0;
    sequence.draftCount = 0;
  }

  /**
   * Returns the least important running sequence that has KV and is not in step `step`. Returns null if no such
   * sequence is less important than `than`.
   */
  leastImportant(than: S, step: number): S | null {
    let least = than;
    for (const one of this.running) {
      const holdsKv = one.step !== step && !one.blockedBy.has("prefix");
      if (holdsKv && mattersLess(one, least)) least = one;
    }
    return least === than ? null : least;
  }

  longestPaused(): S | null {
    let longest: S | null = null;
    for (const one of this.running) {
      if (one.isPaused && (longest === null || one.pausedMs < longest.pausedMs)) longest = one;
    }
    return longest;
  }

  /** Checks that every slot is either free or held by one running sequence. Throws if not. */
  checkIntegrity(): void {
    const slots = [...this.#free, ...this.running.map(({ slot }) => slot)].sort((a, b) => a - b);
    const isBalanced = slots.length === this.#count && slots.every((slot, i) => slot === i);
    if (!isBalanced) throw new Error(`slots do not balance: ${slots.join(",")}`);
    for (const { state, slot, computed, total, tokens, isPooled } of this.running) {
      const isInBounds = computed >= 0 && computed < total && total < tokens.length + (isPooled ? 1 : 0);
      if (state !== "running" || !isInBounds) {
        throw new Error(`slot ${slot}: a ${state} sequence with ${computed}/${total}/${tokens.length} tokens`);
      }
    }
  }
}
