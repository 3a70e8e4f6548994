// Ledger: counts the entries and bytes of a store, in total and by share (the entries of one client), and finds the entry to
// evict next. Each query takes logarithmic time. The rows of an entry change in the same transaction as the entry.
import { pack, unpack } from "msgpackr";
import type { AgePlace } from "./store.ts";
import type { Table, TableKey, Tables } from "./tables.ts";

/** An entry's contribution to the counts. */
export interface Counted {
  readonly key: string;
  readonly share: string;
  /** Time at which the entry was added, in milliseconds since 1970. */
  readonly born: number;
  readonly bytes: number;
  /** Time of expiry in milliseconds since 1970; null if the entry never expires. */
  readonly expiresAt: number | null;
}

export interface Totals {
  readonly entries: number;
  readonly bytes: number;
}

/** A row that refers to an entry. Its key contains the time at which the entry was added or expires. */
export interface EntryRow {
  readonly key: string;
  readonly by: "born" | "expiresAt";
  /** Time in the row's key. If no entry has this key and time, the row is left over and must be removed. */
  readonly at: number;
  /** Share (the entries of one client) to which the row belongs; null if it belongs to none. */
  readonly share: string | null;
}

interface Share extends Totals {
  /** Time at which the oldest entry of the share (of the client) was added, in milliseconds since 1970. */
  readonly oldest: number;
}

const nothing: Totals = { entries: 0, bytes: 0 };
const totalsKey: TableKey = ["all"];
/** Value of rows whose key contains all the data. */
const row = Uint8Array.of(0);

export class Ledger {
  readonly #totals: Table;
  /** Keys: [born, key] of every entry. */
  readonly #ages: Table;
  /** Keys: [expiresAt, key] of every entry that expires. */
  readonly #expiries: Table;
  readonly #shares: Table;
  /** Keys: [share, born, key] of every entry. A share is the entries of one client; `born` is the time of addition. */
  readonly #byShare: Table;
  /**
   * Keys: [number of entries, -oldest, share] of every share (the entries of one client). `oldest`: time at which the oldest
   * entry was added. Among shares with equal counts, the share with the oldest entry is last.
   */
  readonly #mostEntries: Table;
  /** Keys: [bytes, -oldest, share] of every share (the entries of one client). `oldest`: time at which the oldest entry was added. */
  readonly #mostBytes: Table;

  constructor(tables: Tables) {
    this.#totals = tables.table("totals");
    this.#ages = tables.table("ages");
    this.#expiries = tables.table("expiries");
    this.#shares = tables.table("shares");
    this.#byShare = tables.table("by-share");
    this.#mostEntries = tables.table("most-entries");
    this.#mostBytes = tables.table("most-bytes");
  }

  totals(): Totals {
    return read(this.#totals.get(totalsKey)) ?? nothing;
  }

  /** Returns the row of the oldest entry; null if there are no entries. */
  oldest(): EntryRow | null {
    return firstRow(this.#ages, "born");
  }

  /**
   * Returns the positions (time of addition and key) of the newest entries, the newest first. If `before` is given, returns
   * only entries older than `before`.
   */
  newest(limit: number, before: AgePlace | null): readonly AgePlace[] {
    const from = before === null ? undefined : [before.born, before.key];
    return this.#ages.last(limit, from).map(([born, key]) => ({ born: born as number, key: key as string }));
  }

  /** Returns the row of the entry that expires first; null if no entry expires. */
  firstToExpire(): EntryRow | null {
    return firstRow(this.#expiries, "expiresAt");
  }

  /**
   * Returns the row of the oldest entry in the share (the entries of one client) with the most entries or bytes, as `what`
   * says. Skips the entry with the key `spared`. Returns null if there is no other entry.
   */
  oldestOfMost(what: keyof Totals, spared: string | null): EntryRow | null {
    const most = what === "entries" ? this.#mostEntries : this.#mostBytes;
    // Two shares (each the entries of one client) are enough: if the largest share has only the spared entry, the second largest
    // has an entry to return.
    for (const [, , share] of most.last(2)) {
      for (const [owner, born, key] of this.#byShare.first(2, [share as string])) {
        if (owner === share && key !== spared)
          return { key: key as string, by: "born", at: born as number, share: owner as string };
      }
    }
    return null;
  }

  add(entry: Counted): void {
    this.#ages.put([entry.born, entry.key], row);
    if (entry.expiresAt !== null) this.#expiries.put([entry.expiresAt, entry.key], row);
    this.#byShare.put([entry.share, entry.born, entry.key], row);
    this.#count(entry.share, 1, entry.bytes);
  }

  remove(entry: Counted): void {
    this.#ages.remove([entry.born, entry.key]);
    if (entry.expiresAt !== null) this.#expiries.remove([entry.expiresAt, entry.key]);
    this.#byShare.remove([entry.share, entry.born, entry.key]);
    this.#count(entry.share, -1, -entry.bytes);
  }

  /**
   * Removes a row whose entry does not exist. Does not change the counts, because the row may not have been counted. But if it
   * was the last row of its share (the entries of one client), the counts of the share are set to 0.
   */
  removeRow({ key, by, at, share }: EntryRow): void {
    if (share === null) {
      const table = by === "born" ? this.#ages : this.#expiries;
      table.remove([at, key]);
      return;
    }
    this.#byShare.remove([share, at, key]);
    const counted = read<Share>(this.#shares.get([share])) ?? nothing;
    const isLast = this.#byShare.first(1, [share])[0]?.[0] !== share;
    this.#count(share, isLast ? -counted.entries : 0, isLast ? -counted.bytes : 0);
  }

  #count(name: string, entries: number, bytes: number): void {
    this.#totals.put(totalsKey, pack(sum(this.totals(), entries, bytes)));
    const old = read<Share>(this.#shares.get([name]));
    if (old !== null) this.#unrank(name, old);
    const share = { ...sum(old ?? nothing, entries, bytes), oldest: this.#oldestOf(name) };
    if (share.entries === 0) {
      this.#shares.remove([name]);
      return;
    }
    this.#shares.put([name], pack(share));
    this.#mostEntries.put([share.entries, -share.oldest, name], row);
    this.#mostBytes.put([share.bytes, -share.oldest, name], row);
  }

  #unrank(name: string, { entries, bytes, oldest }: Share): void {
    this.#mostEntries.remove([entries, -oldest, name]);
    this.#mostBytes.remove([bytes, -oldest, name]);
  }

  #oldestOf(share: string): number {
    const [first] = this.#byShare.first(1, [share]);
    return first?.[0] === share ? (first[1] as number) : 0;
  }
}

function firstRow(table: Table, by: EntryRow["by"]): EntryRow | null {
  const [first] = table.first(1);
  return first === undefined ? null : { key: first[1] as string, by, at: first[0] as number, share: null };
}

function sum(totals: Totals, entries: number, bytes: number): Totals {
  return { entries: totals.entries + entries, bytes: totals.bytes + bytes };
}

function read<T>(bytes: Uint8Array | undefined): T | null {
  return bytes === undefined ? null : (unpack(bytes) as T);
}
