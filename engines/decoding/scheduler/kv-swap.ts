// KV swap: the KV of preempted sequences as bytes in main memory, bounded. What does not fit is computed again. Used by
// SlotManager only.
import type { Capabilities, KvCache } from "../../engine.ts";
import type { Sequence } from "./sequence.ts";

export class KvSwap {
  readonly #kv: KvCache;
  readonly #limitBytes: number;
  readonly #canSave: boolean;
  #heldBytes = 0;
  /** As the last sequence had it, so that nothing is copied in vain. */
  #bytesPerToken = 0;

  constructor(kv: KvCache, { saveState, truncate }: Capabilities, limitBytes: number) {
    this.#kv = kv;
    this.#canSave = saveState && truncate;
    this.#limitBytes = limitBytes;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Whether so many tokens of a sequence can be kept, as far as is known of what they take. */
  hasRoomFor(tokens: number): boolean {
    return this.#canSave && this.#heldBytes + tokens * this.#bytesPerToken <= this.#limitBytes;
  }

  /** Keeps what a sequence has in its slot, if there is room, or `makeRoom` makes it. The slot stays as it is. */
  out(sequence: Sequence, makeRoom: () => boolean): void {
    const { computed, slot } = sequence;
    if (computed === 0 || !this.hasRoomFor(computed)) return;
    let saved = this.#kv.save(slot, computed);
    while (saved === null && makeRoom()) saved = this.#kv.save(slot, computed);
    if (saved === null) return;
    const bytes = this.#kv.export(saved);
    this.#kv.drop(saved);
    this.#bytesPerToken = bytes.length / computed;
    if (this.#heldBytes + bytes.length > this.#limitBytes) return;
    this.#heldBytes += bytes.length;
    sequence.swapped = bytes;
    sequence.swappedTokens = computed;
  }

  /** Puts what was kept of a sequence into its slot; it stays kept until forget(). False where there is no room. */
  in(sequence: Sequence): boolean {
    if (sequence.swapped === null) return false;
    const saved = this.#kv.import(sequence.swapped, sequence.swappedTokens);
    if (saved === null) return false;
    this.#kv.restore(sequence.slot, saved, sequence.swappedTokens);
    this.#kv.drop(saved);
    return true;
  }

  forget(sequence: Sequence): void {
    this.#heldBytes -= sequence.swapped?.length ?? 0;
    sequence.swapped = null;
    sequence.swappedTokens = 0;
  }
}
