// Tables: sorted maps from keys to bytes, changed in transactions. Stores on disk and stores in
// memory differ only in their tables.

/**
 * Keys are compared element by element. Numbers come before strings, and a key comes before longer keys
 * that begin with the same elements.
 */
export type TableKey = readonly (string | number)[];

export interface Table {
  get(key: TableKey): Uint8Array | undefined;
  /** Stores a copy of the value. */
  put(key: TableKey, value: Uint8Array): void;
  remove(key: TableKey): void;
  /** Returns the first `limit` keys that are equal to or after `from`, in order. */
  first(limit: number, from?: TableKey): readonly TableKey[];
  /** Returns the last `limit` keys, in reverse order; with `before`, only keys before it. */
  last(limit: number, before?: TableKey): readonly TableKey[];
}

export interface Tables {
  /**
   * Returns the table of this name; creates it if it is missing. Do not call it inside a transaction. Use the table only inside
   * `view` and `transaction`.
   */
  table(name: string): Table;
  /** Makes later views see all transactions that any process has committed until now. */
  refresh(): void;
  /**
   * Runs reads in a read transaction. All reads of one turn of the event loop see the same snapshot, until the next `refresh`
   * or transaction. Throws storage_unavailable if the tables cannot be read now.
   */
  view<T>(read: () => T): T;
  /**
   * Runs a change atomically. No other process can run a transaction at the same time. Throws the error of `change`; throws
   * storage_unavailable if the change cannot be written now.
   */
  transaction<T>(change: () => T): T;
  close(): Promise<void>;
}
