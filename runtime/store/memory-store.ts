// Owns values kept in memory: gone with the process. Values are packed as on disk, so that they count the same bytes and
// nobody shares an object with the store.
import { bornAt, type PackedEntry, packed, unpackedHead, unpackedRest } from "./packing.ts";
import type { Entry, Store, StoreLimits } from "./store.ts";

export class MemoryStore<Head, Rest> implements Store<Head, Rest> {
  readonly #limits: StoreLimits;
  readonly #now: () => number;
  /** In the order they were added. */
  readonly #values = new Map<string, PackedEntry>();
  #totalBytes = 0;

  constructor(limits: StoreLimits, now: () => number = Date.now) {
    this.#limits = limits;
    this.#now = now;
  }

  async get(key: string): Promise<Entry<Head, Rest> | null> {
    const found = this.#fresh(key);
    return found === undefined ? null : { head: unpackedHead(found.head), rest: unpackedRest(found.rest) };
  }

  async head(key: string): Promise<Head | null> {
    const found = this.#fresh(key);
    return found === undefined ? null : unpackedHead(found.head);
  }

  async put(key: string, value: Entry<Head, Rest>): Promise<void> {
    const entry = packed(value, this.#now(), this.#limits);
    this.#remove(key);
    this.#values.set(key, entry);
    this.#totalBytes += entry.byteLength;
    this.#evict();
  }

  async replace(key: string, value: Entry<Head, Rest>): Promise<boolean> {
    const old = this.#fresh(key);
    if (old === undefined) return false;
    const entry = packed(value, bornAt(old.head), this.#limits);
    this.#values.set(key, entry);
    this.#totalBytes += entry.byteLength - old.byteLength;
    this.#evict();
    return true;
  }

  async delete(key: string): Promise<boolean> {
    const wasThere = this.#fresh(key) !== undefined;
    this.#remove(key);
    return wasThere;
  }

  async close(): Promise<void> {
    this.#values.clear();
  }

  #fresh(key: string): PackedEntry | undefined {
    const entry = this.#values.get(key);
    return entry === undefined || this.#isExpired(entry) ? undefined : entry;
  }

  #isExpired({ head }: PackedEntry): boolean {
    return bornAt(head) < this.#now() - this.#limits.maxAgeMs;
  }

  #evict(): void {
    const { maxEntries, maxBytes } = this.#limits;
    for (const [key, entry] of this.#values) {
      if (this.#values.size <= maxEntries && this.#totalBytes <= maxBytes && !this.#isExpired(entry)) return;
      this.#remove(key);
    }
  }

  #remove(key: string): void {
    this.#totalBytes -= this.#values.get(key)?.byteLength ?? 0;
    this.#values.delete(key);
  }
}
