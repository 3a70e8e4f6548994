// Prefix list: the prefixes in the store, sorted by adapter and tokens. In this order, the neighbours of a prompt are
// the entries with the longest common prefix. Used by prefix-store.ts. This module does not access files.

/** The adapter and the tokens that a prefix was computed from; the sort key. */
export interface PrefixKey {
  /** Version of the adapter that the prefix was computed with; empty for the base model. */
  readonly adapter: string;
  readonly tokens: Int32Array;
}

/** A computed prefix and the name and size of its file. */
export interface ListedPrefix extends PrefixKey {
  readonly name: string;
  readonly fileBytes: number;
}

/** A list of prefixes in which no prefix is the beginning of another. */
export class PrefixList {
  readonly #sorted: ListedPrefix[] = [];

  get size(): number {
    return this.#sorted.length;
  }

  /**
   * Adds a prefix for which covers() returns false. If a prefix in the list is the beginning of the new prefix, that
   * prefix is replaced. Returns the replaced prefix, or null.
   */
  add(prefix: ListedPrefix): ListedPrefix | null {
    const covered = this.coveredBy(prefix);
    const at = this.#placeOf(prefix);
    if (covered === null) this.#sorted.splice(at, 0, prefix);
    else this.#sorted.splice(at - 1, 1, prefix);
    return covered;
  }

  remove(name: string): void {
    const at = this.#sorted.findIndex((prefix) => prefix.name === name);
    if (at >= 0) this.#sorted.splice(at, 1);
  }

  /** Whether the list contains this prefix or a longer one that begins with it. */
  covers(key: PrefixKey): boolean {
    const next = this.#sorted[this.#placeOf(key)];
    return next !== undefined && beginsWith(next, key);
  }

  /**
   * Returns the prefix in the list that `key` begins with; null: none. Only the entry before `key` in the sort order is
   * checked. This is enough, because no prefix in the list is the beginning of another.
   */
  coveredBy(key: PrefixKey): ListedPrefix | null {
    const previous = this.#sorted[this.#placeOf(key) - 1];
    return previous !== undefined && beginsWith(key, previous) ? previous : null;
  }

  /**
   * Returns the entry whose tokens have the longest common prefix with `key`; null if no entry of the same adapter
   * begins with the same token. Of two equally long common prefixes, returns the entry with the smaller file.
   */
  longest(key: PrefixKey): { readonly prefix: ListedPrefix; readonly length: number } | null {
    const at = this.#placeOf(key);
    const [best] = this.#sorted
      .slice(Math.max(at - 1, 0), at + 1)
      .map((prefix) => ({ prefix, length: commonLength(prefix, key) }))
      .sort((a, b) => b.length - a.length || a.prefix.fileBytes - b.prefix.fileBytes);
    return best !== undefined && best.length > 0 ? best : null;
  }

  /** Returns the index of the first prefix that does not come before `key`. */
  #placeOf(key: PrefixKey): number {
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (comesBefore(this.#sorted[middle] as ListedPrefix, key)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Whether `whole` begins with all of `beginning`. */
export function beginsWith(whole: PrefixKey, beginning: PrefixKey): boolean {
  return commonLength(whole, beginning) === beginning.tokens.length;
}

function comesBefore(a: PrefixKey, b: PrefixKey): boolean {
  if (a.adapter !== b.adapter) return a.adapter < b.adapter;
  const length = commonLength(a, b);
  if (length === b.tokens.length) return false;
  return length === a.tokens.length || (a.tokens[length] as number) < (b.tokens[length] as number);
}

/** Returns the length of the common prefix in tokens; -1 if the adapters differ, because then the KV differs. */
function commonLength(a: PrefixKey, b: PrefixKey): number {
  if (a.adapter !== b.adapter) return -1;
  const limit = Math.min(a.tokens.length, b.tokens.length);
  let length = 0;
  while (length < limit && a.tokens[length] === b.tokens[length]) length++;
  return length;
}
