// Owns values kept on disk, in a folder that several servers of one machine may share: LMDB sees to it that what was written
// survives a kill, and that every change is whole. Runs where disk may be waited for: never on the front.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Database, open, type RootDatabase } from "lmdb";
import { ServerError } from "../errors.ts";
import { checkLmdbFile } from "./lmdb-file.ts";
import { bornAt, packed, unpacked } from "./packing.ts";
import type { Store, StoreLimits } from "./store.ts";

export class LmdbStore<Value> implements Store<Value> {
  readonly #limits: StoreLimits;
  readonly #now: () => number;
  readonly #root: RootDatabase;
  readonly #values: Database<Buffer, string>;
  /** By age: [birth, key] to the bytes of the value. */
  readonly #order: Database<number, [born: number, key: string]>;
  readonly #totals: Database<number, "bytes" | "entries">;

  private constructor(root: RootDatabase, limits: StoreLimits, now: () => number) {
    this.#root = root;
    this.#limits = limits;
    this.#now = now;
    this.#values = root.openDB({ name: "values", encoding: "binary" });
    this.#order = root.openDB({ name: "order" });
    this.#totals = root.openDB({ name: "totals" });
  }

  /** Throws config_invalid where the folder cannot be used. */
  static async open<Value>(folder: string, limits: StoreLimits, now = Date.now): Promise<LmdbStore<Value>> {
    let store: LmdbStore<Value>;
    try {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      checkLmdbFile(join(folder, "data.mdb"));
      store = new LmdbStore(open({ path: folder, noSubdir: false, maxDbs: 3 }), limits, now);
      // Also shows that it can be written to. What is too old or too much by the limits of today goes at once.
      await store.#root.transaction(() => store.#evict());
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const text = `the folder ${folder} cannot keep state: ${why}; choose another, or move its files away`;
      throw new ServerError("config_invalid", text, { cause: error });
    }
    return store;
  }

  async get(key: string): Promise<Value | null> {
    const bytes = this.#fresh(key);
    return bytes === undefined ? null : unpacked<Value>(bytes);
  }

  async put(key: string, value: Value): Promise<void> {
    const bytes = packed(value, this.#now(), this.#limits);
    await this.#root.transaction(() => {
      this.#remove(key);
      this.#add(key, bytes);
      this.#evict();
    });
  }

  async replace(key: string, value: Value): Promise<boolean> {
    // Too large is known before anything is begun: what throws inside a transaction does not undo it.
    const bytes = packed(value, 0, this.#limits);
    return await this.#root.transaction(() => {
      const old = this.#fresh(key);
      if (old === undefined) return false;
      bytes.writeDoubleBE(bornAt(old));
      this.#remove(key);
      this.#add(key, bytes);
      this.#evict();
      return true;
    });
  }

  async delete(key: string): Promise<boolean> {
    return await this.#root.transaction(() => {
      const wasThere = this.#fresh(key) !== undefined;
      this.#remove(key);
      return wasThere;
    });
  }

  async close(): Promise<void> {
    await this.#root.flushed;
    await this.#root.close();
  }

  #fresh(key: string): Buffer | undefined {
    const bytes = this.#values.getBinary(key);
    return bytes === undefined || bornAt(bytes) < this.#oldestBirth() ? undefined : bytes;
  }

  #oldestBirth(): number {
    return this.#now() - this.#limits.maxAgeMs;
  }

  // The rest runs inside a transaction: it reads what other servers have written, and what it has written itself.

  #add(key: string, bytes: Buffer): void {
    this.#values.putSync(key, bytes);
    this.#order.putSync([bornAt(bytes), key], bytes.length);
    this.#count(1, bytes.length);
  }

  #remove(key: string): void {
    const bytes = this.#values.getBinary(key);
    if (bytes === undefined) return;
    this.#values.removeSync(key);
    this.#order.removeSync([bornAt(bytes), key]);
    this.#count(-1, -bytes.length);
  }

  #evict(): void {
    const { maxEntries, maxBytes } = this.#limits;
    const oldest = this.#oldestBirth();
    while (true) {
      const [first] = this.#order.getRange({ limit: 1 });
      if (first === undefined) return;
      const [born, key] = first.key;
      const isOver = this.#total("entries") > maxEntries || this.#total("bytes") > maxBytes;
      if (!isOver && born >= oldest) return;
      this.#remove(key);
    }
  }

  #total(name: "bytes" | "entries"): number {
    return this.#totals.get(name) ?? 0;
  }

  #count(entries: number, bytes: number): void {
    this.#totals.putSync("entries", this.#total("entries") + entries);
    this.#totals.putSync("bytes", this.#total("bytes") + bytes);
  }
}
