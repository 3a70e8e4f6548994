// Checks of a database folder before LMDB maps its files: LMDB trusts what it maps, and would end the whole process over a
// file that is none, or not whole, or has no room on the disk. Reads the two pages a file begins with, as LMDB lays them out.
import { closeSync, fstatSync, openSync, readSync, rmSync, writeFileSync } from "node:fs";

const MAGIC = 0xbeefc0de;
const metaBytes = 160;
// From the start of one of the two pages.
const magicAt = 24;
const pageSizeAt = 48;
const lastPageAt = 144;
const transactionAt = 152;
/** Pages at the end that were taken and given back without being written. */
const slackPages = 64;
/** More than LMDB's table of 126 readers. */
const lockFileBytes = 16_384;

/** Throws where the file is there and is no whole database. An empty one becomes one. */
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
 * Makes LMDB's lock file where there is none, with its room on the disk: LMDB maps it without writing it first, and a page that
 * a full disk has no room for ends the process. Throws what the file system says.
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

function checkPages(file: number, size: number): void {
  const first = metaAt(file, 0);
  const pageSize = first?.readUInt32LE(pageSizeAt) ?? 0;
  const second = pageSize < 512 || pageSize > 65_536 ? null : metaAt(file, pageSize);
  if (first === null || second === null) throw new Error("its data.mdb is damaged, or no database");
  const [one, other] = [first.readBigUInt64LE(transactionAt), second.readBigUInt64LE(transactionAt)];
  const newest = one > other ? first : second;
  const pages = Number(newest.readBigUInt64LE(lastPageAt)) + 1;
  if (size < (pages - slackPages) * pageSize) {
    throw new Error(`its data.mdb is cut off: ${size} of ${pages * pageSize} bytes`);
  }
}

function metaAt(file: number, position: number): Buffer | null {
  const meta = Buffer.alloc(metaBytes);
  if (readSync(file, meta, 0, metaBytes, position) < metaBytes) return null;
  return meta.readUInt32LE(magicAt) === MAGIC ? meta : null;
}
