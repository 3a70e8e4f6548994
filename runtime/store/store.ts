// Store: entries by key. Each entry consists of a small head and large parts that are read in slices. Each entry belongs to a
// share, for example to the entries of one client. If a limit is exceeded, the share with the most entries or bytes loses its
// oldest entry. Tables (tables.ts) hold the bytes, in memory or on disk.

/** A stored part of an entry. Its id is never reused in the store. */
export interface Part {
  readonly id: number;
  readonly bytes: number;
}

export interface Entry<Head, Content = Uint8Array> {
  readonly head: Head;
  /** Name of the share to which the entry belongs, for example the name of a client. */
  readonly share: string;
  readonly parts: Readonly<Record<string, Content>>;
  /**
   * Expiry in milliseconds since 1970 (wallTime() of runtime/clock.ts). After that time, the entry is not found. Absent or null
   * if the entry never expires.
   */
  readonly expiresAt?: number | null;
}

/** An entry as read from the store. */
export interface KeptEntry<Head> extends Entry<Head, Part> {
  /** Increases with each change. It is never reused for a key, even after the entry was deleted. */
  readonly version: number;
  /** Time at which the entry was added, in milliseconds since 1970. Replacing the entry does not change it. */
  readonly born: number;
}

/** A new value for an entry: each part is either new bytes or a part of the version it replaces. */
export type NextEntry<Head> = Entry<Head, Uint8Array | Part>;

export interface ListRequest {
  /** Only keys with this prefix are listed; if absent, all keys. */
  readonly prefix?: string;
  /** Cursor of the previous page; null for the first page. */
  readonly cursor: string | null;
  /** Maximum number of entries on the page; at least 1. */
  readonly limit: number;
}

export interface ListPage<Head> {
  /** Entries of the page, sorted by key. A page may have fewer entries than the limit, or none, even if more pages follow. */
  readonly entries: readonly (KeptEntry<Head> & { readonly key: string })[];
  /** Cursor for the next page; null if there are no more entries. */
  readonly cursor: string | null;
}

/** Position of an entry in the order of age. */
export interface AgePlace {
  readonly born: number;
  readonly key: string;
}

export interface NewestRequest {
  /** `next` of the previous page; null for the first page. */
  readonly before: AgePlace | null;
  /** Maximum number of entries on the page; at least 1. */
  readonly limit: number;
}

export interface NewestPage<Head> {
  /** Entries of the page, the newest first. A page may have fewer entries than the limit, or none, even if more follow. */
  readonly entries: ListPage<Head>["entries"];
  /** Position of the end of the page; null if there are no more entries. */
  readonly next: AgePlace | null;
}

/** One key, or all keys with a prefix. */
export type WatchTarget = { readonly key: string } | { readonly prefix: string };

/**
 * Receives the key of an entry that was put, changed or removed. The key is null if too many entries have changed to report
 * their keys: any entry may then have changed.
 */
export type WatchListener = (key: string | null) => void;

/** Result of a read: tables in this process return it at once, a store over the network returns a promise. */
export type Reading<T> = T | Promise<T>;

/**
 * All methods throw storage_unavailable if the store cannot be read or written now. Writes throw invalid_value if an entry is
 * too large.
 */
export interface Store<Head> {
  /**
   * Returns the entry; null if it is absent, too old or expired. Its parts stay readable until this turn of the event loop
   * ends; in a store over the network, for some seconds.
   */
  get(key: string): Reading<KeptEntry<Head> | null>;
  /** Returns a copy of bytes of a part; null if the part no longer exists. */
  read(part: number, from: number, to: number): Reading<Uint8Array | null>;
  /**
   * Returns a page of the entries in the order of their keys. An entry that exists during the whole listing is listed exactly
   * once, whatever is written between two pages.
   */
  list(request: ListRequest): Reading<ListPage<Head>>;
  /** Returns a page of the entries in the order of their age, the newest first. */
  newest(request: NewestRequest): Reading<NewestPage<Head>>;
  /** Adds an entry as the newest one, or replaces the entry with the same key. */
  put(key: string, entry: Entry<Head>): Promise<void>;
  /** Deletes an entry. Resolves to true if it existed. */
  delete(key: string): Promise<boolean>;
  /**
   * Replaces an entry, or removes it (`next` is null), if it still has the expected version. If `expected` is null, the entry
   * must not exist. The comparison and the write are one transaction, which is atomic across processes. A replaced entry keeps
   * its age. If the version is different, changes nothing and returns false.
   */
  compareAndSet(key: string, expected: number | null, next: NextEntry<Head> | null): Promise<boolean>;
  /**
   * Calls the listener after each change by any process that has the store open. The returned function ends the watch. Changes
   * made through this store object are reported at once. LMDB sends no notifications, so its other changes are found by polling
   * and reported within 100 ms; several changes of one key in that time count as one. Redis reports every change with a
   * message. Hiding an entry because of its age or expiry does not count as a change, but its later removal does. Throws
   * storage_unavailable if the store cannot be read now.
   */
  watch(target: WatchTarget, listener: WatchListener): () => void;
  /**
   * Removes the entries that exceed the limits. Called at the start and every few minutes, because a write removes only a few
   * entries.
   */
  sweep(): Promise<void>;
  /** Resolves when all pending writes are done. No method may be called afterwards. */
  close(): Promise<void>;
}

export interface StoreLimits {
  /** Maximum number of entries; at least 1. */
  readonly maxEntries: number;
  /** Maximum total size of all entries in bytes. */
  readonly maxBytes: number;
  readonly maxEntryBytes: number;
  /** Maximum age of an entry in ms, since it was added. */
  readonly maxAgeMs: number;
}
