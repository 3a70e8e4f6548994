// Tables in memory, for a single process. A transaction that throws is not rolled back.
import type { Table, TableKey, Tables } from "./tables.ts";

export class MemoryTables implements Tables {
  readonly #tables = new Map<string, MemoryTable>();

  table(name: string): Table {
    const known = this.#tables.get(name);
    if (known !== undefined) return known;
    const made = new MemoryTable();
    this.#tables.set(name, made);
    return made;
  }

  refresh(): void {}

  view<T>(read: () => T): T {
    return read();
  }

  transaction<T>(change: () => T): T {
    return change();
  }

  async close(): Promise<void> {
    this.#tables.clear();
  }
}

class MemoryTable implements Table {
  /** Sorted keys. The value of a key has the same index in the list of values. */
  readonly #keys: TableKey[] = [];
  readonly #values: Uint8Array[] = [];

  get(key: TableKey): Uint8Array | undefined {
    const at = this.#position(key);
    return this.#isAt(at, key) ? this.#values[at] : undefined;
  }

  put(key: TableKey, value: Uint8Array): void {
    const at = this.#position(key);
    const replaced = this.#isAt(at, key) ? 1 : 0;
    this.#keys.splice(at, replaced, key);
    // Store a copy, because the value may be a view of a larger buffer and may change.
    this.#values.splice(at, replaced, new Uint8Array(value));
  }

  remove(key: TableKey): void {
    const at = this.#position(key);
    if (!this.#isAt(at, key)) return;
    this.#keys.splice(at, 1);
    this.#values.splice(at, 1);
  }

  first(limit: number, from?: TableKey): readonly TableKey[] {
    const at = from === undefined ? 0 : this.#position(from);
    return this.#keys.slice(at, at + limit);
  }

  last(limit: number, before?: TableKey): readonly TableKey[] {
    const end = before === undefined ? this.#keys.length : this.#position(before);
    return this.#keys.slice(Math.max(end - limit, 0), end).reverse();
  }

  /** Returns the index of the key, or the index at which to insert it. */
  #position(key: TableKey): number {
    let low = 0;
    let high = this.#keys.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareKeys(this.#keys[middle] as TableKey, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #isAt(at: number, key: TableKey): boolean {
    const found = this.#keys[at];
    return found !== undefined && compareKeys(found, key) === 0;
  }
}

function compareKeys(one: TableKey, other: TableKey): number {
  const length = Math.min(one.length, other.length);
  for (let i = 0; i < length; i++) {
    const [a, b] = [one[i] as string | number, other[i] as string | number];
    if (a === b) continue;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a < b ? -1 : 1;
  }
  return one.length - other.length;
}
