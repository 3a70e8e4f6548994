// Owns giving a sequence that has got a slot its KV: what was swapped out, or what a copy or a running sequence has of its
// prompt, and room for the rest. Used by SlotManager only.
import type { Capacity, KvCache } from "../../engine.ts";
import type { KvModel, PrefixCache } from "../kv/prefix-cache.ts";
import { KvSwap } from "./kv-swap.ts";
import type { Sequence } from "./sequence.ts";

/** Room beyond its tokens that a sequence is given a slot with: sooner than after so many it does not have to give it back. */
const headroomTokens = 64;
/** Of what is swapped out, most that is computed again where others have the rest. */
const mostComputedAgain = 1 / 8;

/** Fewer tokens than these are computed sooner than they are waited for. */
const leastAwaitedTokens = 64;

export class KvAllocator<S extends Sequence> {
  readonly #capacity: Capacity;
  readonly #kv: KvCache;
  readonly #prefixes: PrefixCache<S>;
  readonly #swap: KvSwap;

  constructor({ capacity, capabilities, kv }: KvModel, prefixes: PrefixCache<S>, swapBytes: number) {
    this.#capacity = capacity;
    this.#kv = kv;
    this.#prefixes = prefixes;
    this.#swap = new KvSwap(kv, capabilities, swapBytes);
  }

  /**
   * Fills the empty slot of a sequence with what is known of its tokens and makes room for all of them; or, where a
   * running sequence computes the same prompt now, leaves it waiting for that one. False, with nothing in the slot, where
   * there is too little room.
   */
  place(sequence: S): boolean {
    if (sequence.swapped !== null && !this.#isMostlyShared(sequence)) return this.#placeSwapped(sequence);
    const reused = mustComputeAll(sequence) ? 0 : this.#fillFromOthers(sequence);
    if (sequence.sharedPrefixOwner !== null) return true;
    if (!this.#reserveAll(sequence, reused)) return this.#undo(sequence);
    this.#swap.forget(sequence);
    sequence.computed = reused;
    if (sequence.cachedTokens < 0) this.#prefixes.count(sequence, reused);
    return true;
  }

  /** Room for so many tokens of a sequence in its slot, `have` of which are there; cached copies make place. */
  reserve({ slot }: S, tokens: number, have: number): boolean {
    if (this.#kv.reserve(slot, tokens)) return true;
    if (!this.#prefixes.canMakeRoomFor(tokens - have)) return false;
    while (this.#prefixes.evict()) if (this.#kv.reserve(slot, tokens)) return true;
    return false;
  }

  /** The same without touching anybody: for tokens that are a guess. */
  reserveFree({ slot }: S, tokens: number): boolean {
    return this.#kv.reserve(slot, tokens);
  }

  /** Whether the KV of a sequence that loses its slot is kept, as far as is known: as bytes, or as a cached copy. */
  canKeep({ computed, isPooled }: S): boolean {
    return computed === 0 || this.#swap.hasRoomFor(computed) || (this.#prefixes.keepsCopies && !isPooled);
  }

  /** Whether there may be room for a sequence when others, `victims`, have lost their slots. Counts what is shared twice. */
  canFit(sequence: S, victims: readonly S[]): boolean {
    const { blockTokens } = this.#capacity;
    const shared = this.#prefixes.findRunning(sequence, (source) => source !== sequence)?.length ?? 0;
    let tokens = this.#wanted(sequence) - shared;
    for (const victim of victims) tokens -= Math.ceil(this.#wanted(victim) / blockTokens) * blockTokens;
    return tokens <= 0 || this.#prefixes.canMakeRoomFor(tokens);
  }

  /** Keeps the KV of a sequence that is about to lose its slot, where there is room to keep it. */
  swapOut(sequence: S): void {
    this.#swap.out(sequence, () => this.#prefixes.evict());
  }

  release({ slot }: S): void {
    this.#kv.release(slot);
  }

  /** The sequence has ended. */
  forget(sequence: S): void {
    this.#swap.forget(sequence);
  }

  checkIntegrity(slotless: readonly S[]): void {
    const bytes = slotless.reduce((sum, { swapped }) => sum + (swapped?.length ?? 0), 0);
    if (bytes !== this.#swap.heldBytes) throw new Error(`${bytes} bytes swapped out, ${this.#swap.heldBytes} counted`);
  }

  /** Puts the longest known beginning into the slot and returns its length; or sets the source that is computing it. */
  #fillFromOthers(sequence: S): number {
    const { slot } = sequence;
    const isOther = (source: S) => source !== sequence && source.state === "running";
    // Nobody waits for one that came later: else two could wait for each other.
    const willCompute = (source: S) =>
      source.isRunnableOrWaits && (sequence.order === 0 || source.order < sequence.order);
    const copy = this.#prefixes.findCopy(sequence);
    const copied = copy?.length ?? 0;
    const coming = this.#prefixes.findRunning(sequence, (source, length) => {
      return isOther(source) && (source.computed >= length || willCompute(source));
    });
    const there = coming ?? this.#prefixes.findRunning(sequence, isOther);
    const shared = there === null ? 0 : Math.min(there.holder.computed, there.length);
    if (coming !== null && coming.length - Math.max(copied, shared) >= leastAwaitedTokens) {
      sequence.sharedPrefixOwner = coming.holder;
      sequence.sharedPrefixTokens = coming.length;
      return 0;
    }
    if (there !== null && shared > copied) {
      this.#kv.copyPrefix(there.holder.slot, slot, shared);
      return shared;
    }
    if (copy !== null) this.#kv.restore(slot, copy.holder.saved, copied);
    return copied;
  }

  #placeSwapped(sequence: S): boolean {
    const { swappedTokens } = sequence;
    const wanted = this.#wanted(sequence);
    if (!this.#prefixes.canMakeRoomFor(wanted)) return false;
    while (this.#kv.freeBlocks < Math.ceil(wanted / this.#capacity.blockTokens)) {
      if (!this.#prefixes.evict()) return false;
    }
    // Blocks are not all an engine may be short of.
    while (!this.#swap.in(sequence)) {
      if (this.#prefixes.evict()) continue;
      this.#swap.forget(sequence);
      return this.place(sequence);
    }
    if (!this.#reserveAll(sequence, swappedTokens)) return this.#undo(sequence);
    this.#swap.forget(sequence);
    sequence.computed = swappedTokens;
    return true;
  }

  /** Whether others have nearly all that was swapped out: theirs takes no memory of its own. */
  #isMostlyShared(sequence: S): boolean {
    if (mustComputeAll(sequence)) return false;
    const { swappedTokens } = sequence;
    const enough = swappedTokens - Math.min(headroomTokens, Math.floor(swappedTokens * mostComputedAgain));
    const isThere = (source: S, length: number) => source !== sequence && source.computed >= length;
    const shared = this.#prefixes.findRunning(sequence, isThere)?.length ?? this.#prefixes.findCopy(sequence)?.length;
    return enough > 0 && (shared ?? 0) >= enough;
  }

  #reserveAll(sequence: S, have: number): boolean {
    return this.reserve(sequence, this.#wanted(sequence), have);
  }

  #wanted({ total, tokens }: S): number {
    return Math.min(total + headroomTokens, tokens.length);
  }

  #undo({ slot }: S): false {
    this.#kv.release(slot);
    return false;
  }
}

/** What is wanted of it comes from every token of its prompt. */
function mustComputeAll({ isPooled, wantsPromptLogits }: Sequence): boolean {
  return isPooled || wantsPromptLogits;
}
