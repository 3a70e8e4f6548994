// Tables: maps from sorted keys to bytes, changed in transactions. Stores on disk and in memory differ only in their tables.

/** Compared element by element: numbers by size and before strings, a shorter key before those it begins. */
export type TableKey = readonly (string | number)[];

export interface Table {
  get(key: TableKey): Uint8Array | undefined;
  /** Keeps a copy of the value. */
  put(key: TableKey, value: Uint8Array): void;
  remove(key: TableKey): void;
  /** At most `limit` keys in their order, beginning with the first one that is not before `from`. */
  first(limit: number, from?: TableKey): readonly TableKey[];
  /** At most `limit` keys, the last one first. */
  last(limit: number): readonly TableKey[];
}

export interface Tables {
  /** The table of this name, made where there is none. It is used inside `view` and `transaction` alone. */
  table(name: string): Table;
  /** From now on views see what every process has written until now. */
  refresh(): void;
  /**
   * Runs reads. Those of one turn of the event loop see one state of all tables, until the next `refresh` or transaction. Throws
   * storage_unavailable where they cannot be read now.
   */
  view<T>(read: () => T): T;
  /**
   * Runs a change that happens as a whole or not at all, alone among all processes. Throws what `change` throws, and
   * storage_unavailable where it cannot be written now.
   */
  transaction<T>(change: () => T): T;
  close(): Promise<void>;
}
