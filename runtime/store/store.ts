// Store: entries by key, each a small head and large parts that are read in slices. Over the limits, the share with the most
// entries or bytes loses its oldest entry. Tables (tables.ts) hold the bytes, in memory or on disk.

/** A stored part of an entry. Its id is unique in the life of the store. */
export interface Part {
  readonly id: number;
  readonly bytes: number;
}

export interface Entry<Head, Content = Uint8Array> {
  readonly head: Head;
  /** Name of the share that the entry counts towards. */
  readonly share: string;
  readonly parts: Readonly<Record<string, Content>>;
  /** Milliseconds since 1970 (wallTime() of runtime/clock.ts). From then on the entry is not found. Absent or null: never. */
  readonly expiresAt?: number | null;
}

/** An entry as read from the store. */
export interface KeptEntry<Head> extends Entry<Head, Part> {
  /** Larger after each change, and never reused for a key, even after a deletion. */
  readonly version: number;
}

/** A new value for an entry: each part is either new bytes or a part of the version it replaces. */
export type NextEntry<Head> = Entry<Head, Uint8Array | Part>;

export interface ListRequest {
  /** Prefix of the keys; all keys if absent. */
  readonly prefix?: string;
  /** Cursor of the page before; null for the first page. */
  readonly cursor: string | null;
  /** Most entries of the page: at least 1. */
  readonly limit: number;
}

export interface ListPage<Head> {
  /** Sorted by key. A page may be shorter than the limit, or empty, although more follow. */
  readonly entries: readonly (KeptEntry<Head> & { readonly key: string })[];
  /** null: no more entries. */
  readonly cursor: string | null;
}

/** One key, or all keys with a prefix. */
export type WatchTarget = { readonly key: string } | { readonly prefix: string };

/** Told the key of an entry that was put, changed or removed; null if too many changed to name them: any may have. */
export type WatchListener = (key: string | null) => void;

/** All writes throw storage_unavailable if the disk cannot be written now, and invalid_value if an entry is too large. */
export interface Store<Head> {
  /** null if absent, too old or expired. The parts stay readable until this turn of the event loop ends. */
  get(key: string): KeptEntry<Head> | null;
  /** A copy of bytes of a part; null if the part is gone. */
  read(part: number, from: number, to: number): Uint8Array | null;
  /**
   * A page of the entries in the order of their keys. An entry that exists throughout is listed exactly once, whatever else is
   * written between two pages.
   */
  list(request: ListRequest): ListPage<Head>;
  /** Adds an entry as the newest, or replaces the one with its key. */
  put(key: string, entry: Entry<Head>): Promise<void>;
  /** True if there was such an entry. */
  delete(key: string): Promise<boolean>;
  /**
   * Replaces an entry, or removes it (null), if it still has the expected version; null expects none. The comparison and the
   * write are one transaction, also among processes. A replaced entry keeps its age. False: the version is another one, and
   * nothing was changed.
   */
  compareAndSet(key: string, expected: number | null, next: NextEntry<Head> | null): Promise<boolean>;
  /**
   * Calls back after each change by any process that has the store open, until the returned function is called. Changes of this
   * store object arrive at once; others within 100 ms, as LMDB does not notify. Changes of one key in between count as one.
   * Hiding by age or expiry is not a change; the later removal is. Throws storage_unavailable if the store cannot be read now.
   */
  watch(target: WatchTarget, listener: WatchListener): () => void;
  /** Removes what is beyond the limits. Called at the start and every few minutes: a write removes only a little. */
  sweep(): Promise<void>;
  /** Resolves when all pending writes are done. Nothing may be called afterwards. */
  close(): Promise<void>;
}

export interface StoreLimits {
  /** At least 1. */
  readonly maxEntries: number;
  /** Sum of all entries. */
  readonly maxBytes: number;
  readonly maxEntryBytes: number;
  /** Since an entry was added. */
  readonly maxAgeMs: number;
}
