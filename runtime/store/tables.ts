// Tables: sorted maps from keys to bytes, changed in transactions. Stores on disk and in memory differ only in their tables.

/** Compared element by element: numbers before strings, and a key before longer keys that it begins. */
export type TableKey = readonly (string | number)[];

export interface Table {
  get(key: TableKey): Uint8Array | undefined;
  /** Stores a copy of the value. */
  put(key: TableKey, value: Uint8Array): void;
  remove(key: TableKey): void;
  /** The first `limit` keys that are not before `from`, in order. */
  first(limit: number, from?: TableKey): readonly TableKey[];
  /** The last `limit` keys, in reverse order. */
  last(limit: number): readonly TableKey[];
}

export interface Tables {
  /** The table of this name, made if missing; not inside a transaction. Used only inside `view` and `transaction`. */
  table(name: string): Table;
  /** Later views see all transactions of all processes until now. */
  refresh(): void;
  /**
   * Runs reads. All reads of one turn of the event loop see one snapshot, until the next `refresh` or transaction. Throws
   * storage_unavailable if the tables cannot be read now.
   */
  view<T>(read: () => T): T;
  /**
   * Runs a change atomically, exclusively among all processes. Throws the error of `change`, and storage_unavailable if it cannot
   * be written now.
   */
  transaction<T>(change: () => T): T;
  close(): Promise<void>;
}
