// Prefix index: finds the holder (a sequence or a cached copy) that has the longest common prefix with a token list.
// Each block of tokens has a hash over the block and all blocks before it. Holders with equal hashes are candidates,
// whose tokens are then compared.

/**
 * Number of tokens in a block. Computing a shorter prefix takes less time than finding, saving
 * and restoring it. Chosen by hand.
 */
export const indexBlockTokens = 16;

export interface TokenHolder {
  readonly tokens: Int32Array;
  readonly adapter: number;
}

export interface Match<H> {
  readonly holder: H;
  /** Number of tokens in common. */
  readonly length: number;
}

export class PrefixIndex<H extends TokenHolder> {
  readonly #holders = new Map<number, Set<H>>();
  readonly #lengths = new Map<H, number>();

  get size(): number {
    return this.#lengths.size;
  }

  /**
   * Adds the first `length` tokens of a holder to the index. These tokens must not change while they are in the index.
   */
  add(holder: H, length: number): void {
    this.#lengths.set(holder, length);
    for (const hash of blockHashes(holder, length)) {
      const others = this.#holders.get(hash);
      if (others === undefined) this.#holders.set(hash, new Set([holder]));
      else others.add(holder);
    }
  }

  /** Removes a holder from the index. Does nothing if it is not indexed. */
  remove(holder: H): void {
    const length = this.#lengths.get(holder);
    if (length === undefined) return;
    this.#lengths.delete(holder);
    for (const hash of blockHashes(holder, length)) {
      const others = this.#holders.get(hash);
      others?.delete(holder);
      if (others?.size === 0) this.#holders.delete(hash);
    }
  }

  /**
   * Returns the usable holder with the longest common prefix within the first `limit` tokens of `wanted`; null if no
   * common prefix is at least a block long. If several prefixes are equally long, returns the holder that was added
   * first.
   */
  longest(wanted: TokenHolder, limit: number, isUsable: (holder: H, length: number) => boolean): Match<H> | null {
    const levels: Set<H>[] = [];
    for (const hash of blockHashes(wanted, limit)) {
      const holders = this.#holders.get(hash);
      if (holders === undefined) break;
      levels.push(holders);
    }
    for (let level = levels.length - 1; level >= 0; level--) {
      let best: Match<H> | null = null;
      for (const holder of levels[level] as Set<H>) {
        // A holder that also matches one more block has already been compared.
        if (levels[level + 1]?.has(holder)) continue;
        const length = commonLength(holder.tokens, wanted.tokens, Math.min(this.#lengths.get(holder) ?? 0, limit));
        const isLonger = length >= indexBlockTokens && length > (best?.length ?? 0);
        if (isLonger && holder.adapter === wanted.adapter && isUsable(holder, length)) best = { holder, length };
      }
      if (best !== null) return best;
    }
    return null;
  }
}

/** Yields a hash for each whole block, over the adapter and all tokens up to the end of the block. */
function* blockHashes({ tokens, adapter }: TokenHolder, length: number): Generator<number> {
  let low = 0x811c9dc5 ^ adapter;
  let high = 0x2545f491 + adapter;
  for (let i = 0; i < length; i++) {
    const token = tokens[i] as number;
    low = Math.imul(low ^ token, 0x01000193) ^ (low >>> 15);
    high = Math.imul(high + token, 0x85ebca6b) ^ (high >>> 13);
    // The hash has 53 bits, the maximum that a JavaScript number holds exactly.
    if ((i + 1) % indexBlockTokens === 0) yield (high >>> 0) * 2 ** 21 + (low >>> 11);
  }
}

function commonLength(a: Int32Array, b: Int32Array, limit: number): number {
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}
