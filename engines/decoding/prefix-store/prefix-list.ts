// Prefix list: the prefixes in the store, sorted by adapter and tokens, so the neighbours of a prompt share the longest
// prefixes with it. Used by prefix-store.ts; it knows no files.

/** What a prefix was computed from; the sort key. */
export interface PrefixKey {
  /** Version of the adapter it was computed with; empty for the base model. */
  readonly adapter: string;
  readonly tokens: Int32Array;
}

/** A computed prefix and its file. */
export interface ListedPrefix extends PrefixKey {
  readonly name: string;
  readonly fileBytes: number;
}

/** Prefixes of which none is a prefix of another. */
export class PrefixList {
  readonly #sorted: ListedPrefix[] = [];

  get size(): number {
    return this.#sorted.length;
  }

  /** Adds a prefix that the list does not cover. It replaces the prefix that it covers, if any, which is returned. */
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

  /** Whether the list has this prefix or a longer one that begins with it. */
  covers(key: PrefixKey): boolean {
    const next = this.#sorted[this.#placeOf(key)];
    return next !== undefined && beginsWith(next, key);
  }

  /**
   * The stored prefix that `key` begins with. Every prefix between the two in this order begins with it too, so it is
   * the one before, or none.
   */
  coveredBy(key: PrefixKey): ListedPrefix | null {
    const previous = this.#sorted[this.#placeOf(key) - 1];
    return previous !== undefined && beginsWith(key, previous) ? previous : null;
  }

  /** The prefix with the longest common beginning, the smaller file of two; null if nothing is common. */
  longest(key: PrefixKey): { readonly prefix: ListedPrefix; readonly length: number } | null {
    const at = this.#placeOf(key);
    const [best] = this.#sorted
      .slice(Math.max(at - 1, 0), at + 1)
      .map((prefix) => ({ prefix, length: commonLength(prefix, key) }))
      .sort((a, b) => b.length - a.length || a.prefix.fileBytes - b.prefix.fileBytes);
    return best !== undefined && best.length > 0 ? best : null;
  }

  /** Index of the first prefix that does not come before `key`. */
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

/** Length of the common beginning; -1 under different adapters, whose KV differs. */
function commonLength(a: PrefixKey, b: PrefixKey): number {
  if (a.adapter !== b.adapter) return -1;
  const limit = Math.min(a.tokens.length, b.tokens.length);
  let length = 0;
  while (length < limit && a.tokens[length] === b.tokens[length]) length++;
  return length;
}
