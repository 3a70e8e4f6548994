// Owns what a store is to the actors that keep things in one: plain values by key, the oldest of which go when there are too
// many, too much or too old. Where they are kept is the implementation's business; the actors cannot tell.

/** A value in two parts that live and die together: one that is read often, and the bulk that is read seldom. */
export interface Entry<Head, Rest> {
  readonly head: Head;
  readonly rest: Rest;
}

export interface Store<Head, Rest> {
  get(key: string): Promise<Entry<Head, Rest> | null>;
  /** The head alone: what the rest comes to is not even read. */
  head(key: string): Promise<Head | null>;
  /** Adds a value, as the newest; settles when it would outlive this process. Throws invalid_value where it is too large. */
  put(key: string, value: Entry<Head, Rest>): Promise<void>;
  /** Puts a value in another's place, of whose age it is; false where there is none. */
  replace(key: string, value: Entry<Head, Rest>): Promise<boolean>;
  /** False where there was none. */
  delete(key: string): Promise<boolean>;
  /** Settles when all that was written is where it belongs. Nothing else may be called afterwards. */
  close(): Promise<void>;
}

export interface StoreLimits {
  /** At least 1. */
  readonly maxEntries: number;
  /** Of all values together. */
  readonly maxBytes: number;
  readonly maxEntryBytes: number;
  /** Since a value was added. */
  readonly maxAgeMs: number;
}
