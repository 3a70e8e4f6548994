// Owns values kept in memory: gone with the process. Values are packed as on disk, so that they count the same bytes and
// nobody shares an object with the store.
import { bornAt, packed, unpacked } from "./packing.ts";
import type { Store, StoreLimits } from "./store.ts";

export class MemoryStore<Value> implements Store<Value> {
  readonly #limits: StoreLimits;
  readonly #now: () => number;
  /** In the order they were added. */
  readonly #values = new Map<string, Buffer>();
  #totalBytes = 0;

  constructor(limits: StoreLimits, now: () => number = Date.now) {
    this.#limits = limits;
    this.#now = now;
  }

  async get(key: string): Promise<Value | null> {
    const bytes = this.#fresh(key);
    return bytes === undefined ? null : unpacked<Value>(bytes);
  }

  async put(key: string, value: Value): Promise<void> {
    const bytes = packed(value, this.#now(), this.#limits);
    this.#remove(key);
    this.#values.set(key, bytes);
    this.#totalBytes += bytes.length;
    this.#evict();
  }

  async replace(key: string, value: Value): Promise<boolean> {
    const old = this.#fresh(key);
    if (old === undefined) return false;
    const bytes = packed(value, bornAt(old), this.#limits);
    this.#values.set(key, bytes);
    this.#totalBytes += bytes.length - old.length;
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

  #fresh(key: string): Buffer | undefined {
    const bytes = this.#values.get(key);
    return bytes === undefined || this.#isExpired(bytes) ? undefined : bytes;
  }

  #isExpired(bytes: Buffer): boolean {
    return bornAt(bytes) < this.#now() - this.#limits.maxAgeMs;
  }

  #evict(): void {
    const { maxEntries, maxBytes } = this.#limits;
    for (const [key, bytes] of this.#values) {
      if (this.#values.size <= maxEntries && this.#totalBytes <= maxBytes && !this.#isExpired(bytes)) return;
      this.#remove(key);
    }
  }

  #remove(key: string): void {
    this.#totalBytes -= this.#values.get(key)?.length ?? 0;
    this.#values.delete(key);
  }
}
