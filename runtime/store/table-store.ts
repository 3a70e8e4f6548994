// Store over tables: its entries, their parts, and the limits they are kept to.
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import { type Counted, type EntryRow, Ledger, ledgerTables } from "./ledger.ts";
import { bytesToWrite, Parts, type PreparedParts, partTables, preparedBytes } from "./parts.ts";
import type { Change, Entry, KeptEntry, Part, PartChanges, Store, StoreLimits } from "./store.ts";
import type { Table, Tables } from "./tables.ts";
import { WriteQueue } from "./write-queue.ts";

/**
 * An entry that is too old is hidden at once, but removed only this much later, and only when the store has been open for that
 * long: a clock that jumps and is corrected removes nothing.
 */
const OLD_MS = 3_600_000;
/** Most entries that one change removes for being beyond the limits. */
const MOST_REMOVED = 32;

export const storeTables: readonly string[] = ["entries", ...ledgerTables, ...partTables];

interface Kept<Head> extends KeptEntry<Head> {
  readonly born: number;
  readonly bytes: number;
}

export class TableStore<Head> implements Store<Head> {
  readonly #tables: Tables;
  readonly #limits: StoreLimits;
  readonly #now: () => number;
  readonly #openedAt: number;
  readonly #entries: Table;
  readonly #parts: Parts;
  readonly #ledger: Ledger;
  readonly #writes: WriteQueue;
  /** Changes in progress. */
  readonly #pending = new Set<Promise<void>>();
  #tidying: Promise<void> | null = null;
  #isClosing = false;

  /** `now` says milliseconds since 1970, and does not jump. */
  constructor(tables: Tables, limits: StoreLimits, now: () => number = steadyTime) {
    this.#tables = tables;
    this.#limits = limits;
    this.#now = now;
    this.#openedAt = now();
    this.#writes = new WriteQueue(tables);
    this.#entries = tables.table("entries");
    this.#parts = new Parts(tables, now);
    this.#ledger = new Ledger(tables);
  }

  get(key: string): KeptEntry<Head> | null {
    this.#tables.refresh();
    return this.#tables.view(() => this.#fresh(key));
  }

  read(part: number, from: number, to: number): Uint8Array | null {
    return this.#tables.view(() => this.#parts.read(part, from, to));
  }

  put(key: string, { head, share, parts }: Entry<Head>): Promise<void> {
    return this.#change(parts, (prepared) => {
      const bytes = this.#sizeOf(head, {}, prepared);
      const old = this.#find(key);
      if (old !== null) this.#remove(key, old);
      this.#add(key, { head, share, born: this.#now(), bytes, parts: this.#placed({}, prepared) });
      this.#makeRoom(key);
    });
  }

  change(key: string, parts: PartChanges, decide: (kept: KeptEntry<Head> | null) => Change<Head>): Promise<void> {
    return this.#change(parts, (prepared) => {
      const old = this.#fresh(key);
      const change = decide(old);
      if (old === null || change === "keep") return;
      if (change === "remove") {
        this.#remove(key, old);
        return;
      }
      const bytes = this.#sizeOf(change.head, old.parts, prepared);
      this.#ledger.remove(counted(key, old));
      this.#add(key, { ...old, head: change.head, bytes, parts: this.#placed(old.parts, prepared) });
      this.#makeRoom(key);
    });
  }

  async sweep(): Promise<void> {
    this.#parts.sweep();
    await this.#tidy();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await Promise.allSettled([...this.#pending, this.#tidying]);
    await this.#tables.close();
  }

  #change(parts: PartChanges, apply: (prepared: PreparedParts) => void): Promise<void> {
    const changing = this.#prepareAndCommit(parts, apply);
    this.#pending.add(changing);
    const done = (): void => void this.#pending.delete(changing);
    changing.then(done, done);
    return changing;
  }

  async #prepareAndCommit(parts: PartChanges, apply: (prepared: PreparedParts) => void): Promise<void> {
    // Before anything is written: large parts are written ahead.
    this.#checkSize(Object.values(parts).reduce((sum, part) => sum + (part?.byteLength ?? 0), 0));
    const prepared = await this.#parts.prepare(parts);
    try {
      await this.#writes.add(bytesToWrite(prepared), () => apply(prepared));
    } finally {
      this.#parts.abandon(prepared);
    }
  }

  /** Removes all that is beyond the limits, some of it in each of several transactions. */
  #tidy(): Promise<void> {
    this.#tidying ??= this.#evictAll().finally(() => {
      this.#tidying = null;
    });
    return this.#tidying;
  }

  async #evictAll(): Promise<void> {
    for (let isMore = true; isMore && !this.#isClosing; ) {
      await this.#writes.add(0, () => {
        isMore = this.#evict(null);
      });
    }
  }

  // The rest runs in a view or a transaction.

  #find(key: string): Kept<Head> | null {
    const found = this.#entries.get([key]);
    return found === undefined ? null : (unpack(found) as Kept<Head>);
  }

  #fresh(key: string): Kept<Head> | null {
    const found = this.#find(key);
    return found === null || found.born < this.#oldestBirth() ? null : found;
  }

  #oldestBirth(): number {
    return this.#now() - this.#limits.maxAgeMs;
  }

  #add(key: string, kept: Kept<Head>): void {
    this.#entries.put([key], pack(kept));
    this.#ledger.add(counted(key, kept));
  }

  #remove(key: string, kept: Kept<Head>): void {
    this.#ledger.remove(counted(key, kept));
    this.#entries.remove([key]);
    for (const part of Object.values(kept.parts)) this.#parts.remove(part);
  }

  /** The parts of an entry with the prepared ones in place. */
  #placed(old: KeptEntry<Head>["parts"], prepared: PreparedParts): KeptEntry<Head>["parts"] {
    const parts: Record<string, Part> = { ...old };
    for (const [name, part] of prepared) {
      const replaced = parts[name];
      if (replaced !== undefined) this.#parts.remove(replaced);
      delete parts[name];
      if (part !== null) parts[name] = this.#parts.place(part);
    }
    return parts;
  }

  /** The bytes that an entry will count for. Throws where it cannot be kept: nothing has been changed yet. */
  #sizeOf(head: Head, old: KeptEntry<Head>["parts"], prepared: PreparedParts): number {
    let bytes = pack(head).byteLength;
    for (const [name, part] of Object.entries(old)) if (!prepared.has(name)) bytes += part.bytes;
    for (const part of prepared.values()) {
      if (part === null) continue;
      this.#parts.check(part);
      bytes += preparedBytes(part);
    }
    this.#checkSize(bytes);
    return bytes;
  }

  #checkSize(bytes: number): void {
    const limit = Math.min(this.#limits.maxEntryBytes, this.#limits.maxBytes);
    if (bytes > limit) throw new ServerError("invalid_value", `expected at most ${limit} bytes to keep, got ${bytes}`);
  }

  #makeRoom(spared: string): void {
    // What fails here is tried again with the next change.
    if (this.#evict(spared)) this.#tidy().catch(() => {});
  }

  /** Removes some of what is beyond the limits, but not the spared entry. True where there is more. */
  #evict(spared: string | null): boolean {
    for (let i = 0; i < MOST_REMOVED; i++) {
      const row = this.#nextToGo(spared);
      if (row === null) return false;
      const kept = this.#find(row.key);
      // A row that another version of the server wrote: without its removal it would be the next to go for ever.
      if (kept === null || kept.born !== row.born) this.#ledger.removeRow(row);
      else this.#remove(row.key, kept);
    }
    return true;
  }

  #nextToGo(spared: string | null): EntryRow | null {
    const { maxEntries, maxBytes } = this.#limits;
    const { entries, bytes } = this.#ledger.totals();
    const isOver = entries > maxEntries || bytes > maxBytes;
    const oldest = this.#ledger.oldest();
    // Where room is needed, what is hidden goes first.
    const tooOld = isOver ? this.#oldestBirth() : this.#oldestKept();
    if (oldest !== null && oldest.born < tooOld && oldest.key !== spared) return oldest;
    return isOver ? this.#ledger.oldestOfMost(entries > maxEntries ? "entries" : "bytes", spared) : null;
  }

  #oldestKept(): number {
    return this.#now() - this.#openedAt < OLD_MS ? Number.NEGATIVE_INFINITY : this.#oldestBirth() - OLD_MS;
  }
}

/** The time of day by a clock that was set when the process started, and runs evenly from then on. */
function steadyTime(): number {
  return performance.timeOrigin + performance.now();
}

function counted(key: string, { share, born, bytes }: Omit<Counted, "key">): Counted {
  return { key, share, born, bytes };
}
