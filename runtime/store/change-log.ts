// Change log: numbers the changes of a store, and keeps the keys of the latest ones for the watchers of every process.
import { pack, unpack } from "msgpackr";
import type { Table, TableKey, Tables } from "./tables.ts";

const lastKey: TableKey = [0];

/** Changes kept. A watcher that is further behind learns that it has missed some. */
const KEPT = 4096;
/** Most changes read at once. */
const MOST_READ = 256;

/** Changes after a given one. */
export interface Changes {
  /** Keys of the changed entries; null if some are no longer known. */
  readonly keys: ReadonlySet<string> | null;
  /** Number of the last change read. */
  readonly last: number;
  readonly hasMore: boolean;
}

export class ChangeLog {
  /** [number] of each change to its key in UTF-8; [0] to the last number. */
  readonly #changes: Table;

  constructor(tables: Tables) {
    this.#changes = tables.table("changes");
  }

  /** In a transaction: records a change and returns its number, which is the entry's new version. */
  append(key: string): number {
    const number = this.last() + 1;
    this.#changes.put(lastKey, pack(number));
    this.#changes.put([number], Buffer.from(key));
    if (number > KEPT) this.#changes.remove([number - KEPT]);
    return number;
  }

  /** In a view: number of the last change; 0 if there was none. */
  last(): number {
    const found = this.#changes.get(lastKey);
    return found === undefined ? 0 : (unpack(found) as number);
  }

  /** In a view: the changes after number `seen`. */
  after(seen: number): Changes {
    const last = this.last();
    if (last === seen) return { keys: new Set(), last, hasMore: false };
    const rows = this.#changes.first(MOST_READ, [seen + 1]);
    // A last number below `seen`: the folder was replaced by another.
    if (rows[0]?.[0] !== seen + 1) return { keys: null, last, hasMore: false };
    const keys = rows.map((row) => Buffer.from(this.#changes.get(row) ?? []).toString());
    return { keys: new Set(keys), last: seen + rows.length, hasMore: seen + rows.length < last };
  }
}
