// Watchers: tell the listeners of a store which entries have changed. LMDB does not notify: the change log is polled while there
// are listeners, and read at once after a write of this process.
import { ServerError } from "../errors.ts";
import type { ChangeLog, Changes } from "./change-log.ts";
import type { WatchListener, WatchTarget } from "./store.ts";
import type { Tables } from "./tables.ts";

const POLL_MS = 100;

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
