// Owns values kept on disk, in a folder that several servers of one machine may share: LMDB sees to it that what was written
// survives a kill, and that every change is whole. Runs where disk may be waited for: never on the front.
import { join } from "node:path";
import { type Database, open, type RootDatabase } from "lmdb";
import { ServerError } from "../errors.ts";
import { makeFolder } from "../make-folder.ts";
import { checkLmdbFile } from "./lmdb-file.ts";
import { bornAt, type PackedEntry, packed, unpackedHead, unpackedRest } from "./packing.ts";
import type { Entry, Store, StoreLimits } from "./store.ts";

export class LmdbStore<Head, Rest> implements Store<Head, Rest> {
  readonly #limits: StoreLimits;
  readonly #now: () => number;
  readonly #root: RootDatabase;
  readonly #heads: Database<Buffer, string>;
  readonly #rests: Database<Buffer, string>;
  /** By age: [birth, key] to the bytes of the whole value. */
  readonly #ages: Database<number, [born: number, key: string]>;
  readonly #totals: Database<number, "bytes" | "entries">;

  private constructor(root: RootDatabase, limits: StoreLimits, now: () => number) {
    this.#root = root;
    this.#limits = limits;
    this.#now = now;
    this.#heads = root.openDB({ name: "heads", encoding: "binary" });
    this.#rests = root.openDB({ name: "rests", encoding: "binary" });
    this.#ages = root.openDB({ name: "ages" });
    this.#totals = root.openDB({ name: "sums" });
  }

  /** Throws config_invalid where the folder cannot be used. */
  static async open<Head, Rest>(folder: string, limits: StoreLimits, now = Date.now): Promise<LmdbStore<Head, Rest>> {
    let store: LmdbStore<Head, Rest>;
    try {
      makeFolder(folder, 0o700);
      checkLmdbFile(join(folder, "data.mdb"));
      store = new LmdbStore(open({ path: folder, noSubdir: false, maxDbs: 4 }), limits, now);
      // Also shows that it can be written to. What is too old or too much by the limits of today goes at once.
      await store.#root.transaction(() => store.#evict());
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const text = `the folder ${folder} cannot keep state: ${why}; choose another, or move its files away`;
      throw new ServerError("config_invalid", text, { cause: error });
    }
    return store;
  }

  async get(key: string): Promise<Entry<Head, Rest> | null> {
    // Both in one turn, which is one view of the database: nothing is replaced between them.
    const head = this.#fresh(key);
    const rest = head === undefined ? undefined : this.#rests.getBinary(key);
    return head === undefined || rest === undefined ? null : { head: unpackedHead(head), rest: unpackedRest(rest) };
  }

  async head(key: string): Promise<Head | null> {
    const head = this.#fresh(key);
    return head === undefined ? null : unpackedHead(head);
  }

  async put(key: string, value: Entry<Head, Rest>): Promise<void> {
    const entry = packed(value, this.#now(), this.#limits);
    await this.#root.transaction(() => {
      this.#remove(key);
      this.#add(key, entry);
      this.#evict();
    });
  }

  async replace(key: string, value: Entry<Head, Rest>): Promise<boolean> {
    // Too large is known before anything is begun: what throws inside a transaction does not undo it.
    const entry = packed(value, 0, this.#limits);
    return await this.#root.transaction(() => {
      const old = this.#fresh(key);
      if (old === undefined) return false;
      entry.head.writeDoubleBE(bornAt(old));
      this.#remove(key);
      this.#add(key, entry);
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

  /** Of what is not too old, the bytes of its head. */
  #fresh(key: string): Buffer | undefined {
    const head = this.#heads.getBinary(key);
    return head === undefined || bornAt(head) < this.#oldestBirth() ? undefined : head;
  }

  #oldestBirth(): number {
    return this.#now() - this.#limits.maxAgeMs;
  }

  // The rest runs inside a transaction: it reads what other servers have written, and what it has written itself.

  #add(key: string, { head, rest, byteLength }: PackedEntry): void {
    this.#heads.putSync(key, head);
    this.#rests.putSync(key, rest);
    this.#ages.putSync([bornAt(head), key], byteLength);
    this.#count(1, byteLength);
  }

  #remove(key: string): void {
    const head = this.#heads.getBinary(key);
    if (head !== undefined) this.#drop(bornAt(head), key);
  }

  #drop(born: number, key: string): void {
    this.#count(-1, -(this.#ages.get([born, key]) ?? 0));
    this.#ages.removeSync([born, key]);
    this.#heads.removeSync(key);
    this.#rests.removeSync(key);
  }

  #evict(): void {
    const { maxEntries, maxBytes } = this.#limits;
    const oldest = this.#oldestBirth();
    while (true) {
      const [first] = this.#ages.getRange({ limit: 1 });
      if (first === undefined) return;
      const [born, key] = first.key;
      const isOver = this.#total("entries") > maxEntries || this.#total("bytes") > maxBytes;
      if (!isOver && born >= oldest) return;
      this.#drop(born, key);
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
