// KV allocator: fills the slot of an admitted sequence with known KV (from its own swapped KV, a cached copy, or a
// running sequence) and reserves room for the remaining tokens. It also swaps the KV of preempted sequences to main
// memory.
import type { KvCache } from "../../engine.ts";
import type { KvModel, PrefixCache } from "../kv/prefix-cache.ts";
import type { Match } from "../kv/prefix-index.ts";
import type { Sequence } from "./sequence.ts";

/**
 * Number of tokens reserved for the output of a sequence when it gets a slot, so that it is not preempted
 * again at once. Chosen by hand.
 */
const headroomTokens = 64;
/**
 * A swapped-out sequence need not swap in its own KV if other sequences or cached copies hold the KV of most of its
 * tokens. This is the maximum fraction of its tokens whose KV may be missing there; these tokens are computed again.
 * Chosen by hand.
 */
const mostComputedAgain = 1 / 8;
/**
 * Minimum length of a shared prefix for which a sequence waits until another sequence has computed it. A shorter prefix
 * is computed twice. Chosen by hand.
 */
const leastAwaitedTokens = 64;

export class KvAllocator<S extends Sequence> {
  readonly #blockTokens: number;
  readonly #kv: KvCache;
  readonly #prefixes: PrefixCache<S>;
  readonly #canSwap: boolean;
  readonly #swapLimitBytes: number;
  #swappedBytes = 0;
  /** Bytes per token of the last swapped sequence: an estimate for the next swapped sequence. */
  #bytesPerToken = 0;

  /** `swapBytes`: maximum total bytes of swapped-out KV, which is the KV of preempted sequences in main memory. */
  constructor({ capacity, capabilities, kv }: KvModel, prefixes: PrefixCache<S>, swapBytes: number) {
    this.#blockTokens = capacity.blockTokens;
    this.#kv = kv;
    this.#prefixes = prefixes;
    this.#canSwap = capabilities.saveState && capabilities.truncate;
    this.#swapLimitBytes = swapBytes;
  }

  /**
   * Fills the empty slot of a sequence with known KV and reserves room for its tokens. If another sequence is computing
   * the same prefix now, blocks `sequence` instead. If memory is short, returns false and leaves the slot empty.
   */
  place(sequence: S): boolean {
    if (sequence.swapped !== null && !this.#isMostlyShared(sequence)) return this.#placeSwapped(sequence);
    const reused = mustComputeAll(sequence) ? 0 : this.#fillFromOthers(sequence);
    if (sequence.sharedPrefixOwner !== null) return true;
    if (!this.#reserveAll(sequence, reused)) return false;
    if (sequence.cachedTokens < 0) this.#prefixes.count(sequence, reused);
    return true;
  }

  /** Returns whether a blocked sequence must still wait for its shared prefix. If not, unblocks the sequence. */
  awaitsPrefix(sequence: S): boolean {
    const { sharedPrefixOwner: owner, sharedPrefixTokens } = sequence;
    if (owner !== null && willPrefill(owner) && owner.computed < sharedPrefixTokens) return true;
    sequence.sharedPrefixOwner = null;
    sequence.blockedBy.delete("prefix");
    return false;
  }

  /**
   * Reserves room for the first `tokens` tokens of a sequence. The slot already holds the first `have` of them. Evicts
   * cached copies if needed. Returns false if memory is short.
   */
  reserve({ slot }: S, tokens: number, have: number): boolean {
    if (this.#kv.reserve(slot, tokens)) return true;
    if (!this.#prefixes.canMakeRoomFor(tokens - have)) return false;
    while (this.#prefixes.evict()) if (this.#kv.reserve(slot, tokens)) return true;
    return false;
  }

  /** Whether the KV of a sequence can probably be kept if it loses its slot, either swapped out or as a cached copy. */
  canKeep({ computed, isPooled }: S): boolean {
    return computed === 0 || this.#hasSwapRoom(computed) || (this.#prefixes.keepsCopies && !isPooled);
  }

  /**
   * Whether a sequence may fit after `victims` have lost their slots. The estimate is optimistic, because blocks that
   * several victims share are counted more than once.
   */
  canFit(sequence: S, victims: readonly S[]): boolean {
    const shared = this.#prefixes.findRunning(sequence, (owner) => owner !== sequence)?.length ?? 0;
    let tokens = wantedTokens(sequence) - shared;
    for (const victim of victims) tokens -= this.#blocksOf(wantedTokens(victim)) * this.#blockTokens;
    return tokens <= 0 || this.#prefixes.canMakeRoomFor(tokens);
  }

  /** Swaps out the KV of a sequence that is about to lose its slot, if there is room. Does not release the slot. */
  swapOut(sequence: S): void {
    const { computed, slot } = sequence;
    if (computed === 0 || !this.#hasSwapRoom(computed)) return;
    let saved = this.#kv.save(slot, computed);
    while (saved === null && this.#prefixes.evict()) saved = this.#kv.save(slot, computed);
    if (saved === null) return;
    const bytes = this.#kv.export(saved);
    this.#kv.drop(saved);
    this.#bytesPerToken = bytes.length / computed;
    if (this.#swappedBytes + bytes.length > this.#swapLimitBytes) return;
    this.#swappedBytes += bytes.length;
    sequence.swapped = bytes;
    sequence.swappedTokens = computed;
  }

  release({ slot }: S): void {
    this.#kv.release(slot);
  }

  /** Drops the swapped KV of a sequence. */
  forget(sequence: S): void {
    this.#swappedBytes -= sequence.swapped?.length ?? 0;
    sequence.swapped = null;
    sequence.swappedTokens = 0;
  }

  /**
   * Checks that the counted swapped bytes equal the sum over all sequences. A running sequence has swapped KV while it
   * waits for a shared prefix. Throws if the numbers differ.
   */
  checkIntegrity(sequences: readonly S[]): void {
    const bytes = sequences.reduce((sum, { swapped }) => sum + (swapped?.length ?? 0), 0);
    if (bytes !== this.#swappedBytes) throw new Error(`${bytes} bytes swapped out, ${this.#swappedBytes} counted`);
  }

  /**
   * Copies the longest known prefix into the slot and returns its length. If another sequence is computing a longer
   * common prefix, returns 0 and blocks `sequence` until that prefix is computed.
   */
  #fillFromOthers(sequence: S): number {
    const { slot, order } = sequence;
    const copy = this.#prefixes.findCopy(sequence);
    const copied = copy?.length ?? 0;
    const isOther = (owner: S) => owner !== sequence && owner.state === "running";
    // A sequence waits only for sequences that were admitted earlier, so two sequences cannot wait for each other.
    const isEarlier = (owner: S) => order === 0 || owner.order < order;
    const coming = this.#prefixes.findRunning(sequence, (owner, length) => {
      return isOther(owner) && (owner.computed >= length || (willPrefill(owner) && isEarlier(owner)));
    });
    const there = coming ?? this.#prefixes.findRunning(sequence, isOther);
    const shared = there === null ? 0 : Math.min(there.holder.computed, there.length);
    if (coming !== null && coming.length - Math.max(copied, shared) >= leastAwaitedTokens) {
      this.#block(sequence, coming);
      return 0;
    }
    if (there !== null && shared > copied) {
      this.#kv.copyPrefix(there.holder.slot, slot, shared);
      return shared;
    }
    if (copy !== null) this.#kv.restore(slot, copy.holder.saved, copied);
    return copied;
  }

  #block(sequence: S, { holder, length }: Match<S>): void {
    sequence.blockedBy.add("prefix");
    sequence.sharedPrefixOwner = holder;
    sequence.sharedPrefixTokens = length;
  }

  #placeSwapped(sequence: S): boolean {
    const wanted = wantedTokens(sequence);
    if (!this.#prefixes.canMakeRoomFor(wanted)) return false;
    while (this.#kv.freeBlocks < this.#blocksOf(wanted)) if (!this.#prefixes.evict()) return false;
    // Importing can fail even with enough free blocks, because an engine may lack other memory.
    while (!this.#swapIn(sequence)) {
      if (this.#prefixes.evict()) continue;
      this.forget(sequence);
      return this.place(sequence);
    }
    return this.#reserveAll(sequence, sequence.swappedTokens);
  }

  /**
   * Puts the swapped KV into the slot. Returns false if there is no room. The swapped bytes stay in main memory until
   * forget().
   */
  #swapIn({ slot, swapped, swappedTokens }: S): boolean {
    const saved = swapped && this.#kv.import(swapped, swappedTokens);
    if (saved === null) return false;
    this.#kv.restore(slot, saved, swappedTokens);
    this.#kv.drop(saved);
    return true;
  }

  /**
   * Whether other sequences or cached copies hold nearly all of the swapped tokens. If so, sharing these tokens is
   * better than swapping in, because sharing takes no memory.
   */
  #isMostlyShared(sequence: S): boolean {
    if (mustComputeAll(sequence)) return false;
    const { swappedTokens } = sequence;
    const enough = swappedTokens - Math.min(headroomTokens, Math.floor(swappedTokens * mostComputedAgain));
    const isThere = (owner: S, length: number) => owner !== sequence && owner.computed >= length;
    const shared = this.#prefixes.findRunning(sequence, isThere)?.length ?? this.#prefixes.findCopy(sequence)?.length;
    return enough > 0 && (shared ?? 0) >= enough;
  }

  /**
   * Reserves room for all tokens of a sequence whose slot holds the first `have` tokens. Empties the slot and
   * returns false if memory is short.
   */
  #reserveAll(sequence: S, have: number): boolean {
    if (!this.reserve(sequence, wantedTokens(sequence), have)) {
      this.#kv.release(sequence.slot);
      return false;
    }
    this.forget(sequence);
    sequence.computed = have;
    return true;
  }

  #hasSwapRoom(tokens: number): boolean {
    return this.#canSwap && this.#swappedBytes + tokens * this.#bytesPerToken <= this.#swapLimitBytes;
  }

  #blocksOf(tokens: number): number {
    return Math.ceil(tokens / this.#blockTokens);
  }
}

function wantedTokens({ total, tokens }: Sequence): number {
  return Math.min(total + headroomTokens, tokens.length);
}

/**
 * Whether all prompt tokens must be fed even if their KV is known. Pooling and prompt logits need the result at each
 * token.
 */
function mustComputeAll({ isPooled, wantsPromptLogits }: Sequence): boolean {
  return isPooled || wantsPromptLogits;
}

/**
 * Whether the sequence is computing its prompt, or waits to do so until another sequence has computed their common
 * prefix.
 */
function willPrefill({ state, blockedBy }: Sequence): boolean {
  return state === "running" && !blockedBy.has("reader") && !blockedBy.has("grammar");
}
