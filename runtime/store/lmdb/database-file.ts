// Checks of a database folder before LMDB maps its files. LMDB trusts mapped files. An invalid or truncated file, or a page
// without disk space, would therefore end the process. Reads the two meta pages at the start of the file.
import { randomUUID } from "node:crypto";
import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fstatSync,
  linkSync,
  openSync,
  readSync,
  rmSync,
  writeFileSync,
} from "node:fs";

/** Stamp of LMDB in both of its files: in each meta page of the database, and at the beginning of the lock file. */
export const MAGIC = 0xbeefc0de;
const metaBytes = 160;
// Byte offsets in a meta page.
const magicAt = 24;
const pageSizeAt = 48;
const lastPageAt = 144;
const transactionAt = 152;
/** Maximum number of pages at the end of the file that may be allocated but not written. */
const slackPages = 64;
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
 * page without disk space would end the process. The file appears as a whole: another process that starts at the same time may
 * already have locks in it, which a later write would reset. Throws the error of the file system.
 */
export function makeLockFile(path: string): void {
  if (existsSync(path)) return;
  const whole = `${path}.${randomUUID()}`;
  try {
    writeFileSync(whole, Buffer.alloc(lockFileBytes), { flag: "wx", mode: 0o600 });
    link(whole, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(whole, { force: true });
  }
}

/** Gives a file a second name. Throws EEXIST if the name is taken. Copies the file if the file system has no hard links. */
function link(path: string, name: string): void {
  try {
    linkSync(path, name);
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS"].includes(code)) throw error;
    copyFileSync(path, name, constants.COPYFILE_EXCL);
  }
}

function checkPages(file: number, size: number): void {
  const { pageSize, pages } = newestMeta(file);
  if (size < (pages - slackPages) * pageSize) {
    throw new Error(`its data.mdb is cut off: ${size} of ${pages * pageSize} bytes`);
  }
}

/** State of a database as of the last commit: size of a page, number of pages, and number of the commit. */
interface Meta {
  readonly pageSize: number;
  readonly pages: number;
  readonly commit: number;
}

/** Returns the state as of the last commit. Throws if the file is not a database. */
export function newestMeta(file: number): Meta {
  const first = metaAt(file, 0);
  const pageSize = first?.readUInt32LE(pageSizeAt) ?? 0;
  const second = pageSize < 512 || pageSize > 65_536 ? null : metaAt(file, pageSize);
  if (first === null || second === null) throw new Error("its data.mdb is damaged, or not a database");
  const [one, other] = [first.readBigUInt64LE(transactionAt), second.readBigUInt64LE(transactionAt)];
  const newest = one > other ? first : second;
  const commit = Number(newest.readBigUInt64LE(transactionAt));
  return { pageSize, pages: Number(newest.readBigUInt64LE(lastPageAt)) + 1, commit };
}

function metaAt(file: number, position: number): Buffer | null {
  const meta = Buffer.alloc(metaBytes);
  if (readSync(file, meta, 0, metaBytes, position) < metaBytes) return null;
  return meta.readUInt32LE(magicAt) === MAGIC ? meta : null;
}
