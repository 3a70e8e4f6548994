// Owns what a store is to the actors that keep things in one: plain values by key, the oldest of which go when there are too
// many, too much or too old. Where they are kept is the implementation's business; the actors cannot tell.

export interface Store<Value> {
  get(key: string): Promise<Value | null>;
  /** Adds a value, as the newest; settles when it would outlive this process. Throws invalid_value where it is too large. */
  put(key: string, value: Value): Promise<void>;
  /** Puts a value in another's place, of whose age it is; false where there is none. */
  replace(key: string, value: Value): Promise<boolean>;
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
