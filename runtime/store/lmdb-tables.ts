// Tables on disk, in a folder that several servers of one machine may share. LMDB makes each change atomic, and a committed
// change survives a kill. Blocks on the disk: never used on the front thread.
import { join } from "node:path";
import { type Database, open, type RootDatabase } from "lmdb";
import { ServerError } from "../errors.ts";
import { makeFolder } from "../host/make-folder.ts";
import { checkLmdbFile, makeLockFile } from "./lmdb-file.ts";
import type { Table, TableKey, Tables } from "./tables.ts";

const MAX_TABLES = 16;
/** Failures of a write after which the same environment goes on: EIO (also a write cut short), EFBIG, ENOSPC, EROFS, EDQUOT. */
const passingCodes: readonly unknown[] = [5, 27, 28, 30, 122];

export class LmdbTables implements Tables {
  readonly #folder: string;
  readonly #tables: ReadonlyMap<string, LmdbTable>;
  /** null while the environment is closed: after a failure that LMDB does not recover from, until it is opened again. */
  #root: RootDatabase | null = null;
  #closing: Promise<void> | null = null;
  #isClosed = false;

  private constructor(folder: string, names: readonly string[]) {
    this.#folder = folder;
    this.#tables = new Map(names.map((name) => [name, new LmdbTable(name)]));
  }

  /** Throws config_invalid where the folder cannot be used. */
  static open(folder: string, names: readonly string[]): LmdbTables {
    const tables = new LmdbTables(folder, names);
    try {
      makeFolder(folder, 0o700);
      tables.#open();
    } catch (error) {
      const text = `the folder ${folder} cannot keep state: ${reasonOf(error)}; choose another, or move its files away`;
      throw new ServerError("config_invalid", text, { cause: error });
    }
    return tables;
  }

  table(name: string): Table {
    const table = this.#tables.get(name);
    if (table === undefined) throw new Error(`there is no table ${name}`);
    return table;
  }

  refresh(): void {
    this.#root?.resetReadTxn();
  }

  view<T>(read: () => T): T {
    this.#opened();
    return this.#guarded(read);
  }

  transaction<T>(change: () => T): T {
    const root = this.#opened();
    return this.#guarded(() => root.transactionSync(change));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#abandon();
    await this.#closing;
  }

  #open(): RootDatabase {
    checkLmdbFile(join(this.#folder, "data.mdb"));
    makeLockFile(join(this.#folder, "lock.mdb"));
    // Meta pages are synced with the next commit: a power cut may take the last one back, and never half of it.
    const root = open({
      path: this.#folder,
      noSubdir: false,
      maxDbs: MAX_TABLES,
      overlappingSync: false,
      noMetaSync: true,
    });
    for (const table of this.#tables.values()) table.attach(root);
    this.#root = root;
    return root;
  }

  #opened(): RootDatabase {
    if (this.#root !== null) return this.#root;
    if (this.#isClosed || this.#closing !== null) throw unavailable("it is closed");
    try {
      return this.#open();
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** Turns failures of the disk and of LMDB into storage_unavailable, which a client may see and retry. */
  #guarded<T>(run: () => T): T {
    try {
      return run();
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : null;
      // LMDB's errors have numeric codes. All others are our own.
      if (typeof code !== "number") throw error;
      if (!passingCodes.includes(code)) this.#abandon();
      throw unavailable(error);
    }
  }

  /** Closes the environment. The next access opens it again. */
  #abandon(): void {
    const root = this.#root;
    if (root === null) return;
    this.#root = null;
    const closed = root.close().catch(() => {});
    this.#closing = closed.then(() => {
      this.#closing = null;
    });
  }
}

class LmdbTable implements Table {
  readonly #name: string;
  #database: Database<Buffer, (string | number)[]> | null = null;

  constructor(name: string) {
    this.#name = name;
  }

  attach(root: RootDatabase): void {
    this.#database = root.openDB({ name: this.#name, encoding: "binary" });
  }

  get(key: TableKey): Uint8Array | undefined {
    return this.#opened.getBinary([...key]);
  }

  put(key: TableKey, value: Uint8Array): void {
    this.#opened.putSync([...key], Buffer.from(value.buffer, value.byteOffset, value.byteLength));
  }

  remove(key: TableKey): void {
    this.#opened.removeSync([...key]);
  }

  first(limit: number, from?: TableKey): readonly TableKey[] {
    const start = from === undefined ? {} : { start: [...from] };
    return [...this.#opened.getKeys({ ...start, limit })];
  }

  last(limit: number): readonly TableKey[] {
    return [...this.#opened.getKeys({ reverse: true, limit })];
  }

  get #opened(): Database<Buffer, (string | number)[]> {
    if (this.#database === null) throw new Error(`the table ${this.#name} is not open`);
    return this.#database;
  }
}

function unavailable(cause: unknown): ServerError {
  const text = `the server's disk cannot be read or written now (${reasonOf(cause)}); try again soon`;
  return new ServerError("storage_unavailable", text, { cause });
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
