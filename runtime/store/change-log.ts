// Change log: numbers the changes of a store, and keeps the keys of the latest ones. Watchers of every process read it. LMDB does
// not notify: the log is polled while there are watchers, and read at once after a write of this process.
import { pack, unpack } from "msgpackr";
import { ServerError } from "../errors.ts";
import type { WatchListener, WatchTarget } from "./store.ts";
import type { Table, TableKey, Tables } from "./tables.ts";

const lastKey: TableKey = [0];

/** Changes kept. A watcher that is further behind learns that it has missed some. */
const KEPT = 4096;
/** Most changes read at once. */
const MOST_READ = 256;
const POLL_MS = 100;

/** Changes after a given one. */
interface Changes {
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

interface Watcher {
  readonly target: WatchTarget;
  readonly listener: WatchListener;
}

export class Watchers {
  readonly #tables: Tables;
  readonly #log: ChangeLog;
  readonly #watchers = new Set<Watcher>();
  /** Runs while there are watchers. */
  #timer: NodeJS.Timeout | null = null;
  /** Number of the last change that was told. */
  #seen = 0;

  constructor(tables: Tables, log: ChangeLog) {
    this.#tables = tables;
    this.#log = log;
  }

  /** Throws storage_unavailable if the log cannot be read now. Returns what ends the watch. */
  add(target: WatchTarget, listener: WatchListener): () => void {
    this.#start();
    const watcher = { target, listener };
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.close();
    };
  }

  /** Tells the changes since the last check. Called after each write, and by the timer. */
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

  /** null if the log cannot be read now: the next check tries again. */
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
