// Owns the KV of sequences that have ended well, kept as copies, so that one which begins with the same tokens (a system
// prompt, the turns of a chat) starts behind them. Used by the scheduler only. Entries are few: finding one is a loop.
import type { KvCache, SavedKv } from "../engine.ts";
import type { Sequence } from "./sequence.ts";

/** Fewer tokens than this are fed faster than they are looked for, saved and restored. */
const leastTokens = 16;

interface Entry {
  readonly adapter: number;
  readonly tokens: Int32Array;
  readonly saved: SavedKv;
}

export class PrefixCache {
  /** Prompt tokens that did not have to be computed. */
  reusedTokens = 0;
  readonly #kv: KvCache;
  readonly #limit: number;
  /** The one used last at the end. */
  readonly #entries: Entry[] = [];

  /** Keeps the KV of at most `limit` sequences; 0 switches it off. */
  constructor(kv: KvCache, limit: number) {
    this.#kv = kv;
    this.#limit = limit;
  }

  /** Keeps a copy of what a sequence that is about to end has in its slot. */
  keep({ adapter, tokens, computed, slot }: Sequence): void {
    if (this.#limit === 0 || computed < leastTokens) return;
    const at = this.#entries.findIndex((entry) => {
      const shorter = Math.min(entry.tokens.length, computed);
      return entry.adapter === adapter && commonLength(entry.tokens, tokens, shorter) === shorter;
    });
    const related = this.#entries[at];
    if (related && related.tokens.length >= computed) {
      this.#use(at);
      return;
    }
    const replaced = this.#entries.splice(related ? at : 0, related ? 1 : this.#entries.length - this.#limit + 1);
    let saved = this.#save(slot, replaced);
    // Few entries can have many tokens: the next ones go too, until there is room.
    while (saved === null && this.#entries.length > 0) {
      replaced.push(...this.#entries.splice(0, 1));
      saved = this.#save(slot, replaced);
    }
    if (saved !== null) this.#entries.push({ adapter, tokens: tokens.slice(0, computed), saved });
    else this.#entries.push(...replaced);
  }

  /** Puts the longest known prefix of a sequence into its empty slot. Returns how many tokens that is. */
  restore({ adapter, tokens, total, slot }: Sequence): number {
    let best = -1;
    let bestLength = leastTokens - 1;
    for (const [i, entry] of this.#entries.entries()) {
      if (entry.adapter !== adapter) continue;
      // The last token is always fed: its logits are what the sequence is here for.
      const length = commonLength(entry.tokens, tokens, Math.min(entry.tokens.length, total - 1));
      if (length > bestLength) [best, bestLength] = [i, length];
    }
    const entry = this.#entries[best];
    if (!entry) return 0;
    this.#use(best);
    this.#kv.restore(slot, entry.saved, bestLength);
    this.reusedTokens += bestLength;
    return bestLength;
  }

  #save(slot: number, replaced: readonly Entry[]): SavedKv | null {
    return this.#kv.save(
      slot,
      replaced.map(({ saved }) => saved),
    );
  }

  #use(at: number): void {
    this.#entries.push(...this.#entries.splice(at, 1));
  }
}

function commonLength(a: Int32Array, b: Int32Array, limit: number): number {
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}
