// Owns which prefixes are in the store and how they are found: a list sorted by adapter and tokens. What begins alike stands
// side by side there, so the neighbours of a prompt are those with the longest common beginning. Used by prefix-store.ts; it
// knows no files.

/** What a computed prefix is of, and ordered by. */
export interface PrefixKey {
  /** Generation of the adapter it was computed with; empty for the base model. */
  readonly adapter: string;
  readonly tokens: Int32Array;
}

/** A computed prefix and the file it is in. */
export interface ListedPrefix extends PrefixKey {
  readonly name: string;
  readonly fileBytes: number;
}

/** None of them is the beginning of another. */
export class PrefixList {
  readonly #sorted: ListedPrefix[] = [];

  get size(): number {
    return this.#sorted.length;
  }

  /** Adds a prefix that none in the list covers, in place of the one it covers, which is returned. */
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

  /** Whether a prefix, or one that begins with it, is in here. */
  covers(key: PrefixKey): boolean {
    const next = this.#sorted[this.#placeOf(key)];
    return next !== undefined && beginsWith(next, key);
  }

  /**
   * The one that is no more than the beginning of `key`: what stands between the two in this order begins with it too, so
   * it is the one before, or none.
   */
  coveredBy(key: PrefixKey): ListedPrefix | null {
    const previous = this.#sorted[this.#placeOf(key) - 1];
    return previous !== undefined && beginsWith(key, previous) ? previous : null;
  }

  /** The one with the longest common beginning, the smaller file of two; null where nothing is common. */
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

/** Tokens that both begin with; under different adapters the same tokens have nothing in common. */
function commonLength(a: PrefixKey, b: PrefixKey): number {
  if (a.adapter !== b.adapter) return -1;
  const limit = Math.min(a.tokens.length, b.tokens.length);
  let length = 0;
  while (length < limit && a.tokens[length] === b.tokens[length]) length++;
  return length;
}
