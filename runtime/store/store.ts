// Store: entries by key, each a small head and large parts that are read in slices. When there are too many entries or bytes,
// the share that holds most gives up its oldest entry. Where the bytes lie is for tables.ts; who uses a store cannot tell.

/** One part of an entry, by a number that no other part of the store has had or will have. */
export interface Part {
  readonly id: number;
  readonly bytes: number;
}

export interface Entry<Head> {
  readonly head: Head;
  /** Name of the share that the entry counts for. */
  readonly share: string;
  readonly parts: Readonly<Record<string, Uint8Array>>;
}

/** An entry as it lies in the store. */
export interface KeptEntry<Head> {
  readonly head: Head;
  readonly share: string;
  readonly parts: Readonly<Record<string, Part>>;
}

/** Parts by their names. null removes a part; one that is not named stays as it is. */
export type PartChanges = Readonly<Record<string, Uint8Array | null>>;

/** What becomes of an entry: nothing, its end, or a new head together with the changes of its parts. */
export type Change<Head> = "keep" | "remove" | { readonly head: Head };

export interface Store<Head> {
  /** null where there is none, or it is too old. Its parts are there until this turn of the event loop ends. */
  get(key: string): KeptEntry<Head> | null;
  /** A copy of some bytes of a part; null where the part is gone. */
  read(part: number, from: number, to: number): Uint8Array | null;
  /**
   * Adds an entry as the newest, in place of the one with its key. Throws invalid_value where it is too large, and
   * storage_unavailable where it cannot be written now.
   */
  put(key: string, entry: Entry<Head>): Promise<void>;
  /**
   * Changes an entry in one transaction: no other process that shares the store comes between `decide` and the write. `decide`
   * is given the entry, or null where there is none. It may be called more than once; the last call counts. The entry keeps
   * its age and share. Throws as `put` does.
   */
  change(key: string, parts: PartChanges, decide: (kept: KeptEntry<Head> | null) => Change<Head>): Promise<void>;
  /** Removes what is beyond the limits. To be called at the start and every few minutes: writes remove only a little each. */
  sweep(): Promise<void>;
  /** Settles when all that was asked for is done. Nothing else may be called afterwards. */
  close(): Promise<void>;
}

export interface StoreLimits {
  /** At least 1. */
  readonly maxEntries: number;
  /** Of all entries together. */
  readonly maxBytes: number;
  readonly maxEntryBytes: number;
  /** Since an entry was added. */
  readonly maxAgeMs: number;
}
