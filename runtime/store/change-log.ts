// Change log: numbers the changes of a store and keeps the keys of the latest changes. Watchers in every process read it. LMDB
// does not notify watchers. So the log is polled while there are watchers, and read immediately after a write of this process.
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import type { WatchListener, WatchTarget } from "./store.ts";
import type { Table, TableKey, Tables } from "./tables.ts";

const lastKey: TableKey = [0];

/** Number of changes kept. A watcher that has missed more changes learns only that it has missed changes. */
const KEPT = 4096;
/** Maximum number of changes read at once. */
const MOST_READ = 256;
const POLL_MS = 100;

/** The changes after a given change. */
interface Changes {
  /** Keys of the changed entries; null if some are no longer known. */
  readonly keys: ReadonlySet<string> | null;
  /** Number of the last change read. */
  readonly last: number;
  readonly hasMore: boolean;
}

export class ChangeLog {
  /** Maps the number of a change to the key of the changed entry (UTF-8). The row with the number 0 has the number of the last change. */
  readonly #changes: Table;

  constructor(tables: Tables) {
    this.#changes = tables.table("changes");
  }

  /** Records a change and returns its number, which is the entry's new version. Call only inside a transaction. */
  append(key: string): number {
    const number = this.last() + 1;
    this.#changes.put(lastKey, pack(number));
    this.#changes.put([number], Buffer.from(key));
    if (number > KEPT) this.#changes.remove([number - KEPT]);
    return number;
  }

  /** Returns the number of the last change; 0 if there was none. Call only inside a read transaction. */
  last(): number {
    const found = this.#changes.get(lastKey);
    return found === undefined ? 0 : (unpack(found) as number);
  }

  /** Returns the changes numbered above `seen`. Call only inside a read transaction. */
  after(seen: number): Changes {
    const last = this.last();
    if (last === seen) return { keys: new Set(), last, hasMore: false };
    const rows = this.#changes.first(MOST_READ, [seen + 1]);
    // The next change may be missing for two reasons: it is no longer kept, or the folder was replaced by another folder
    // (`last` is then below `seen`).
    if (rows[0]?.[0] !== seen + 1) return { keys: null, last, hasMore: false };
    const keys = rows.map((row) => Buffer.from(this.#changes.get(row) ?? []).toString());
    return { keys: new Set(keys), last: seen + rows.length, hasMore: seen + rows.length < last };
  }
}

interface Watcher {
  readonly target: WatchTarget;
  readonly listener: WatchListener;
}

export class Watchers {
  readonly #tables: Tables;
  readonly #log: ChangeLog;
  readonly #watchers = new Set<Watcher>();
  /** Polling timer. It runs while there are watchers. */
  #timer: NodeJS.Timeout | null = null;
  /** Number of the last change that was reported to the watchers. */
  #seen = 0;

  constructor(tables: Tables, log: ChangeLog) {
    this.#tables = tables;
    this.#log = log;
  }

  /** Adds a watcher. Returns a function that removes it. Throws storage_unavailable if the log cannot be read now. */
  add(target: WatchTarget, listener: WatchListener): () => void {
    this.#start();
    const watcher = { target, listener };
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.close();
    };
  }

  /** Reports the changes since the last check to the watchers. Called after each write, and by the timer. */
  check(): void {
    if (this.#timer === null) return;
    const changes = this.#read();
    if (changes === null) return;
    this.#seen = changes.last;
    for (const key of changes.keys ?? [null]) this.#tell(key);
    if (changes.hasMore) setImmediate(() => this.check());
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#watchers.clear();
  }

  #start(): void {
    if (this.#timer !== null) return;
    this.#tables.refresh();
    this.#seen = this.#tables.view(() => this.#log.last());
    this.#timer = setInterval(() => this.check(), POLL_MS).unref();
  }

  /** Reads the changes. Returns null if the log cannot be read now; the next check tries again. */
  #read(): Changes | null {
    try {
      this.#tables.refresh();
      return this.#tables.view(() => this.#log.after(this.#seen));
    } catch (error) {
      if (error instanceof ServerError) return null;
      throw error;
    }
  }

  #tell(key: string | null): void {
    for (const { target, listener } of this.#watchers) {
      if (key === null || matches(target, key)) listener(key);
    }
  }
}

function matches(target: WatchTarget, key: string): boolean {
  return "key" in target ? key === target.key : key.startsWith(target.prefix);
}
