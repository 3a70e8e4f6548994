// Checks of a database folder before LMDB maps its files. LMDB trusts mapped files. An invalid or truncated file, or a page
// without disk space, would therefore end the process. Reads the two meta pages at the start of the file. Also reserves disk
// space before LMDB writes.
import { closeSync, fstatSync, openSync, readSync, rmSync, writeFileSync, writeSync } from "node:fs";

const MAGIC = 0xbeefc0de;
const metaBytes = 160;
// Byte offsets in a meta page.
const magicAt = 24;
const pageSizeAt = 48;
const lastPageAt = 144;
const transactionAt = 152;
/** Maximum number of pages at the end of the file that may be allocated but not written. */
const slackPages = 64;
/** The file grows by steps of this many bytes. */
const growthBytes = 1024 * 1024;
/** Number of pages that a change of one key writes beside its value: a path of the tree, and of the list of free pages. */
const pathPages = 8;
/** Number of pages that only removals may take, so that a full disk can be cleared. */
const removalPages = 64;
/** Size of the lock file. It is larger than LMDB's table of 126 readers. */
const lockFileBytes = 16_384;

/** Throws if the file exists and is not a complete database. An empty file is valid. */
export function checkLmdbFile(path: string): void {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
    throw error;
  }
  try {
    const { size } = fstatSync(file);
    if (size > 0) checkPages(file, size);
  } finally {
    closeSync(file);
  }
}

/**
 * Creates LMDB's lock file if it is missing, with all its disk space. LMDB maps the file without writing it first, and a mapped
 * page without disk space would end the process. Throws the error of the file system.
 */
export function makeLockFile(path: string): void {
  try {
    writeFileSync(path, Buffer.alloc(lockFileBytes), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return;
    rmSync(path, { force: true });
    throw error;
  }
}

/**
 * Disk space of the database file ahead of its pages. Without it, a commit on a full disk ends the process: the binding
 * (lmdb 3.5.6) writes its message about the failed write into a buffer that is too small. The methods are called during
 * a write transaction, whose lock excludes other processes.
 */
export class LmdbSpace {
  readonly #file: number;
  /** Pages of the file that the transaction cannot have taken yet. */
  #pages = 0;
  #pageSize = 4096;

  constructor(path: string) {
    this.#file = openSync(path, "r+");
  }

  /** Begins a transaction. */
  begin(): void {
    const newest = newestMeta(this.#file);
    this.#pageSize = newest.pageSize;
    this.#pages = Math.floor(fstatSync(this.#file).size / newest.pageSize) - newest.pages;
  }

  /** Makes space for a value of so many bytes. Throws the error of the file system. */
  take(bytes: number): void {
    this.#take(pathPages + Math.ceil(bytes / this.#pageSize), removalPages);
  }

  /** Makes space for the removal of a key. Throws the error of the file system. */
  takeRemoval(): void {
    this.#take(pathPages, 0);
  }

  close(): void {
    try {
      closeSync(this.#file);
    } catch {
      // The file system closed it.
    }
  }

  #take(pages: number, spare: number): void {
    while (this.#pages < pages + spare) {
      const { size } = fstatSync(this.#file);
      const written = writeSync(this.#file, Buffer.alloc(growthBytes), 0, growthBytes, size);
      this.#pages += Math.floor(written / this.#pageSize);
    }
    this.#pages -= pages;
  }
}

function checkPages(file: number, size: number): void {
  const { pageSize, pages } = newestMeta(file);
  if (size < (pages - slackPages) * pageSize) {
    throw new Error(`its data.mdb is cut off: ${size} of ${pages * pageSize} bytes`);
  }
}

/** Returns the size of a page, and the number of pages as of the last commit. Throws if the file is no database. */
function newestMeta(file: number): { readonly pageSize: number; readonly pages: number } {
  const first = metaAt(file, 0);
  const pageSize = first?.readUInt32LE(pageSizeAt) ?? 0;
  const second = pageSize < 512 || pageSize > 65_536 ? null : metaAt(file, pageSize);
  if (first === null || second === null) throw new Error("its data.mdb is damaged, or not a database");
  const [one, other] = [first.readBigUInt64LE(transactionAt), second.readBigUInt64LE(transactionAt)];
  const newest = one > other ? first : second;
  return { pageSize, pages: Number(newest.readBigUInt64LE(lastPageAt)) + 1 };
}

function metaAt(file: number, position: number): Buffer | null {
  const meta = Buffer.alloc(metaBytes);
  if (readSync(file, meta, 0, metaBytes, position) < metaBytes) return null;
  return meta.readUInt32LE(magicAt) === MAGIC ? meta : null;
}
