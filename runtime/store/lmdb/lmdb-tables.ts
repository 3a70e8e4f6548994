// Tables in an LMDB environment, which is a folder that several servers on one machine may share. A committed transaction
// survives a kill. Calls block on the disk, so they are never made on the main thread.
import { join } from "node:path";
import { type Database, type DatabaseOptions, open, type RootDatabase } from "lmdb";
import { ServerError } from "../../errors.ts";
import { makeFolder } from "../../host/make-folder.ts";
import type { Table, TableKey, Tables } from "../tables.ts";
import { checkLmdbFile, makeLockFile } from "./database-file.ts";
import { LmdbSpace } from "./disk-space.ts";
import { checkFollows, StaleTransaction } from "./last-commit.ts";

/** Maximum number of tables: 12 for each store (see stores.ts). */
const MAX_TABLES = 120;
/** Codes of write errors after which the environment stays usable: EIO (also a short write), EFBIG, ENOSPC, EROFS, EDQUOT. */
const passingCodes: readonly number[] = [5, 27, 28, 30, 122];

/** Maximum number of attempts to begin a transaction that follows the last commit. */
const MAX_ATTEMPTS = 5;

interface Environment {
  readonly root: RootDatabase;
  readonly space: LmdbSpace;
  readonly lockFile: string;
}

export class LmdbTables implements Tables {
  readonly #folder: string;
  readonly #tables = new Map<string, LmdbTable>();
  /**
   * The open environment; null while it is closed. After an error from which LMDB does not recover, the environment is closed
   * until the next access.
   */
  #environment: Environment | null = null;
  #closing: Promise<void> | null = null;
  #isClosed = false;

  /** Throws config_invalid if the folder cannot be used. */
  constructor(folder: string) {
    this.#folder = folder;
    this.#use(() => {
      makeFolder(folder, 0o700);
      this.#open();
    });
  }

  /** Returns the table. Throws config_invalid if it cannot be created. */
  table(name: string): Table {
    const known = this.#tables.get(name);
    if (known !== undefined) return known;
    const table = new LmdbTable(name);
    this.#use(() => attach(table, this.#opened()));
    this.#tables.set(name, table);
    return table;
  }

  refresh(): void {
    this.#environment?.root.resetReadTxn();
  }

  view<T>(read: () => T): T {
    this.#opened();
    return this.#guarded(read);
  }

  transaction<T>(change: () => T): T {
    const environment = this.#opened();
    return this.#guarded(() => transact(environment, change));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#abandon();
    await this.#closing;
  }

  #use(prepare: () => void): void {
    try {
      prepare();
    } catch (error) {
      const text = `the folder ${this.#folder} cannot keep state: ${reasonOf(error)}; choose another, or move its files away`;
      throw new ServerError("config_invalid", text, { cause: error });
    }
  }

  #open(): Environment {
    checkLmdbFile(join(this.#folder, "data.mdb"));
    const lockFile = join(this.#folder, "lock.mdb");
    makeLockFile(lockFile);
    // Meta pages are synced with the next commit. So a power failure may undo the last transaction, but only as a whole.
    const root = open({
      path: this.#folder,
      noSubdir: false,
      maxDbs: MAX_TABLES,
      overlappingSync: false,
      noMetaSync: true,
    });
    this.#environment = { root, space: new LmdbSpace(join(this.#folder, "data.mdb")), lockFile };
    try {
      // Opening may have set the number of the last commit to an older one.
      transact(this.#environment, () => {});
      for (const table of this.#tables.values()) attach(table, this.#environment);
    } catch (error) {
      this.#abandon();
      throw error;
    }
    return this.#environment;
  }

  #opened(): Environment {
    if (this.#environment !== null) return this.#environment;
    if (this.#isClosed || this.#closing !== null) throw unavailable("it is closed");
    try {
      return this.#open();
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** Converts errors of the disk and of LMDB to storage_unavailable, which clients may retry. */
  #guarded<T>(run: () => T): T {
    try {
      return run();
    } catch (error) {
      if (error instanceof StaleTransaction) {
        this.#abandon();
        throw unavailable(error);
      }
      const code = systemCode(error);
      if (code === null) throw error;
      if (!passingCodes.includes(code)) this.#abandon();
      throw unavailable(error);
    }
  }

  /** Closes the environment. The next access opens it again. */
  #abandon(): void {
    if (this.#environment === null) return;
    const { root, space } = this.#environment;
    this.#environment = null;
    space.close();
    const closed = root.close().catch(() => {});
    this.#closing = closed.then(() => {
      this.#closing = null;
    });
  }
}

/** Opens the table, or creates it. */
function attach(table: LmdbTable, environment: Environment): void {
  const { root, space } = environment;
  if (table.attach(root, space, false)) return;
  transact(environment, () => space.take(0));
  table.attach(root, space, true);
}

/** Runs a transaction that follows the last commit; see last-commit.ts. */
function transact<T>({ root, space, lockFile }: Environment, change: () => T): T {
  for (let attempt = 1; ; attempt++) {
    try {
      return root.transactionSync(() => {
        checkFollows(root.getWriteTxnId(), space.begin(), lockFile);
        return change();
      });
    } catch (error) {
      if (!(error instanceof StaleTransaction) || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}

class LmdbTable implements Table {
  readonly #name: string;
  #database: Database<Buffer, (string | number)[]> | null = null;
  #space: LmdbSpace | null = null;

  constructor(name: string) {
    this.#name = name;
  }

  /** Opens the table. If the table does not exist, creates it if `create` is true, and returns false otherwise. */
  attach(root: RootDatabase, space: LmdbSpace, create: boolean): boolean {
    // The declarations of the binding lack `create`.
    const options: DatabaseOptions & { name: string; create: boolean } = {
      name: this.#name,
      encoding: "binary",
      create,
    };
    this.#database = (root.openDB(options) as Database<Buffer, (string | number)[]> | undefined) ?? null;
    if (this.#database === null) return false;
    this.#space = space;
    return true;
  }

  get(key: TableKey): Uint8Array | undefined {
    return this.#opened.getBinary([...key]);
  }

  put(key: TableKey, value: Uint8Array): void {
    this.#space?.take(value.byteLength);
    this.#opened.putSync([...key], Buffer.from(value.buffer, value.byteOffset, value.byteLength));
  }

  remove(key: TableKey): void {
    this.#space?.takeRemoval();
    this.#opened.removeSync([...key]);
  }

  first(limit: number, from?: TableKey): readonly TableKey[] {
    const start = from === undefined ? {} : { start: [...from] };
    return [...this.#opened.getKeys({ ...start, limit })].map(tableKey);
  }

  last(limit: number, before?: TableKey): readonly TableKey[] {
    // LMDB includes the start key in the result. So one more key is read, in case `before` itself exists.
    const options = before === undefined ? { limit } : { start: [...before], limit: limit + 1 };
    const keys = [...this.#opened.getKeys({ ...options, reverse: true })].map(tableKey);
    return keys.filter((key) => before === undefined || !isSame(key, before)).slice(0, limit);
  }

  get #opened(): Database<Buffer, (string | number)[]> {
    if (this.#database === null) throw new Error(`the table ${this.#name} is not open`);
    return this.#database;
  }
}

/** Returns the key as an array. The LMDB binding returns the element itself for a key with one element. */
function tableKey(key: TableKey | string | number): TableKey {
  return typeof key === "object" ? key : [key];
}

function isSame(one: TableKey, other: TableKey): boolean {
  return one.length === other.length && one.every((element, i) => element === other[i]);
}

/** Returns the numeric code of an error of LMDB or of the file system; null for any other error. */
function systemCode(error: unknown): number | null {
  if (!(error instanceof Error)) return null;
  const { code, errno } = error as { readonly code?: unknown; readonly errno?: number };
  if (typeof code === "number") return code;
  return errno === undefined ? null : -errno;
}

function unavailable(cause: unknown): ServerError {
  const text = `the server's disk cannot be read or written now (${reasonOf(cause)}); try again soon`;
  return new ServerError("storage_unavailable", text, { cause });
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
