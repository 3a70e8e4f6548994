// Implementation of a store (store.ts) with tables: keeps entries and their parts, and enforces the limits.
import { pack, unpack } from "msgpackr";
import { wallTime } from "../clock.ts";
import { ServerError } from "../errors.ts";
import { ChangeLog, Watchers } from "./change-log.ts";
import { type Counted, type EntryRow, Ledger } from "./ledger.ts";
import { bytesToWrite, type NewParts, Parts, type PreparedParts, preparedBytes } from "./parts.ts";
import type {
  Entry,
  KeptEntry,
  ListPage,
  ListRequest,
  NewestPage,
  NewestRequest,
  NextEntry,
  Part,
  Store,
  StoreLimits,
  WatchListener,
  WatchTarget,
} from "./store.ts";
import type { Table, Tables } from "./tables.ts";
import { WriteQueue } from "./write-queue.ts";

/**
 * Time in ms between the expiry of an entry (from then on, the entry is hidden) and its removal. The same applies to entries
 * that are too old. Nothing is removed until the store has been open for this time. So a wrong clock that is soon corrected
 * causes no removals.
 */
const STALE_MS = 3_600_000;
/** Maximum number of entries that one write evicts: a power of two. */
const MOST_REMOVED = 32;
/**
 * Number of bytes of entries after which one write evicts no more entries. The space that is reserved for removals on a full
 * disk suffices for about this number of bytes.
 */
const MOST_REMOVED_BYTES = 64 * 1024 * 1024;

interface Kept<Head> extends KeptEntry<Head> {
  readonly expiresAt: number | null;
  /** Size of the entry in bytes: its head and all its parts. */
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
  readonly #log: ChangeLog;
  readonly #watchers: Watchers;
  readonly #writes: WriteQueue;
  /** Promises of the writes in progress. */
  readonly #pending = new Set<Promise<void>>();
  #tidying: Promise<void> | null = null;
  #isClosing = false;

  /** `now` returns milliseconds since 1970. Its value must not jump when the system clock is changed. */
  constructor(tables: Tables, limits: StoreLimits, now: () => number = wallTime) {
    this.#tables = tables;
    this.#limits = limits;
    this.#now = now;
    this.#openedAt = now();
    this.#writes = new WriteQueue(tables);
    this.#entries = tables.table("entries");
    this.#parts = new Parts(tables, now);
    this.#ledger = new Ledger(tables);
    this.#log = new ChangeLog(tables);
    this.#watchers = new Watchers(tables, this.#log);
  }

  get(key: string): KeptEntry<Head> | null {
    this.#tables.refresh();
    return this.#tables.view(() => this.#fresh(key));
  }

  read(part: number, from: number, to: number): Uint8Array | null {
    return this.#tables.view(() => this.#parts.read(part, from, to));
  }

  list({ prefix = "", cursor, limit }: ListRequest): ListPage<Head> {
    this.#tables.refresh();
    return this.#tables.view(() => {
      // Read two more than the limit: the cursor (the last key of the previous page), and one key to see whether more follow.
      const rows = this.#entries.first(limit + 2, [cursor ?? prefix]).map(([key]) => key as string);
      const matching = rows.filter((key) => key !== cursor && key.startsWith(prefix));
      const keys = matching.slice(0, limit);
      return {
        entries: keys.flatMap((key) => this.#listed(key)),
        cursor: matching.length > limit ? (keys.at(-1) ?? null) : null,
      };
    });
  }

  newest({ before, limit }: NewestRequest): NewestPage<Head> {
    this.#tables.refresh();
    return this.#tables.view(() => {
      const places = this.#ledger.newest(limit, before);
      const entries = places.flatMap(({ born, key }) => this.#listed(key).filter((entry) => entry.born === born));
      return { entries, next: places.length < limit ? null : (places.at(-1) ?? null) };
    });
  }

  put(key: string, entry: Entry<Head>): Promise<void> {
    return this.#write(entry.parts, (prepared) => this.#set(key, entry, prepared, this.#now()));
  }

  async delete(key: string): Promise<boolean> {
    let wasThere = false;
    await this.#write({}, () => {
      wasThere = this.#fresh(key) !== null;
      if (wasThere) this.#remove(key);
    });
    return wasThere;
  }

  async compareAndSet(key: string, expected: number | null, next: NextEntry<Head> | null): Promise<boolean> {
    let isExpected = false;
    await this.#write(next?.parts ?? {}, (prepared) => {
      const old = this.#fresh(key);
      isExpected = (old?.version ?? null) === expected;
      if (!isExpected) return;
      if (next !== null) this.#set(key, next, prepared, old?.born ?? this.#now());
      else if (old !== null) this.#remove(key);
    });
    return isExpected;
  }

  watch(target: WatchTarget, listener: WatchListener): () => void {
    return this.#watchers.add(target, listener);
  }

  async sweep(): Promise<void> {
    this.#parts.sweep();
    await this.#tidy();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#watchers.close();
    await Promise.allSettled([...this.#pending, this.#tidying]);
    await this.#tables.close();
  }

  #write(parts: NewParts, apply: (prepared: PreparedParts) => void): Promise<void> {
    const writing = this.#prepareAndCommit(parts, apply);
    this.#pending.add(writing);
    const done = (): void => void this.#pending.delete(writing);
    writing.then(done, done);
    return writing;
  }

  async #prepareAndCommit(parts: NewParts, apply: (prepared: PreparedParts) => void): Promise<void> {
    // Check the size before anything is written, because large parts are written in advance.
    this.#checkSize(Object.values(parts).reduce((sum, part) => sum + sizeOf(part), 0));
    const prepared = await this.#parts.prepare(parts);
    try {
      await this.#writes.add(bytesToWrite(prepared), () => apply(prepared));
    } finally {
      this.#parts.abandon(prepared);
    }
    this.#watchers.check();
  }

  /** Evicts all entries that exceed the limits, in several transactions. */
  #tidy(): Promise<void> {
    this.#tidying ??= this.#evictAll().finally(() => {
      this.#tidying = null;
    });
    return this.#tidying;
  }

  async #evictAll(): Promise<void> {
    let most = MOST_REMOVED;
    for (let isMore = true; isMore && !this.#isClosing; ) {
      try {
        await this.#writes.add(0, () => {
          isMore = this.#evict(null, most);
        });
      } catch (error) {
        // The space that is reserved for removals on a full disk suffices for the removal of some entries.
        if (most === 1) throw error;
        most /= 2;
      }
    }
  }

  // The following methods run in a read transaction or a transaction.

  #find(key: string): Kept<Head> | null {
    const found = this.#entries.get([key]);
    // Entries written by earlier releases have no version and no expiry.
    type Written = Omit<Kept<Head>, "version" | "expiresAt">;
    return found === undefined ? null : { version: 0, expiresAt: null, ...(unpack(found) as Written) };
  }

  #fresh(key: string): Kept<Head> | null {
    const found = this.#find(key);
    return found === null || this.#isStale(found, this.#now()) ? null : found;
  }

  #listed(key: string): ListPage<Head>["entries"] {
    const found = this.#fresh(key);
    return found === null ? [] : [{ ...found, key }];
  }

  #isStale({ born, expiresAt }: Pick<Kept<Head>, "born" | "expiresAt">, at: number): boolean {
    return born < at - this.#limits.maxAgeMs || (expiresAt !== null && expiresAt <= at);
  }

  /** Adds or replaces an entry. Throws if it is too large, before anything is changed. */
  #set(key: string, { head, share, expiresAt = null }: NextEntry<Head>, prepared: PreparedParts, born: number): void {
    const old = this.#find(key);
    const bytes = this.#bytesOf(head, old?.parts ?? {}, prepared);
    if (old !== null) this.#removeRest(key, old, prepared);
    const parts: Record<string, Part> = {};
    for (const [name, part] of prepared) parts[name] = this.#parts.place(part);
    const kept: Kept<Head> = { head, share, parts, born, bytes, expiresAt, version: this.#log.append(key) };
    this.#entries.put([key], pack(kept));
    this.#ledger.add(counted(key, kept));
    // If the eviction fails, the next write repeats it.
    if (this.#evict(key)) this.#tidy().catch(() => {});
  }

  #remove(key: string): void {
    const old = this.#find(key);
    if (old === null) return;
    this.#removeRest(key, old, new Map());
    this.#entries.remove([key]);
    this.#log.append(key);
  }

  /** Removes an entry's rows and parts. Parts that the next version reuses are kept. */
  #removeRest(key: string, old: Kept<Head>, next: PreparedParts): void {
    this.#ledger.remove(counted(key, old));
    const reused = new Set([...next.values()].map((part) => ("reused" in part ? part.reused.id : null)));
    for (const part of Object.values(old.parts)) if (!reused.has(part.id)) this.#parts.remove(part);
  }

  /** Returns the size of an entry in bytes: its head and all its parts. Throws if the entry cannot be stored. */
  #bytesOf(head: Head, old: KeptEntry<Head>["parts"], prepared: PreparedParts): number {
    let bytes = pack(head).byteLength;
    for (const part of prepared.values()) {
      this.#parts.check(part, Object.values(old));
      bytes += preparedBytes(part);
    }
    this.#checkSize(bytes);
    return bytes;
  }

  #checkSize(bytes: number): void {
    const limit = Math.min(this.#limits.maxEntryBytes, this.#limits.maxBytes);
    if (bytes > limit) throw new ServerError("invalid_value", `expected at most ${limit} bytes to keep, got ${bytes}`);
  }

  /**
   * Evicts at most `most` entries that exceed the limits, but not the entry `spared`. Returns true if further entries must be
   * evicted.
   */
  #evict(spared: string | null, most = MOST_REMOVED): boolean {
    let bytes = 0;
    for (let i = 0; i < most && bytes < MOST_REMOVED_BYTES; i++) {
      const row = this.#nextToGo(spared);
      if (row === null) return false;
      const kept = this.#find(row.key);
      // A row without a matching entry was left by another version of the server. It must be removed, because otherwise
      // `#nextToGo` would always return it again.
      if (kept === null || kept[row.by] !== row.at) this.#ledger.removeRow(row);
      else this.#remove(row.key);
      bytes += kept?.bytes ?? 0;
    }
    return true;
  }

  #nextToGo(spared: string | null): EntryRow | null {
    const { maxEntries, maxBytes } = this.#limits;
    const { entries, bytes } = this.#ledger.totals();
    const isOver = entries > maxEntries || bytes > maxBytes;
    // If a limit is exceeded, entries that are too old or expired are removed first.
    const staleAt = isOver ? this.#now() : this.#staleAt();
    for (const row of [this.#ledger.oldest(), this.#ledger.firstToExpire()]) {
      if (row === null || row.key === spared) continue;
      if (this.#isStale({ born: Number.POSITIVE_INFINITY, expiresAt: null, [row.by]: row.at }, staleAt)) return row;
    }
    return isOver ? this.#ledger.oldestOfMost(entries > maxEntries ? "entries" : "bytes", spared) : null;
  }

  /**
   * Returns the time at which entries are judged for removal: entries that had expired or were too old at this time are removed
   * now.
   */
  #staleAt(): number {
    return this.#now() - this.#openedAt < STALE_MS ? Number.NEGATIVE_INFINITY : this.#now() - STALE_MS;
  }
}

function sizeOf(part: Uint8Array | Part): number {
  return part instanceof Uint8Array ? part.byteLength : part.bytes;
}

function counted(key: string, { share, born, bytes, expiresAt }: Omit<Counted, "key">): Counted {
  return { key, share, born, bytes, expiresAt };
}
