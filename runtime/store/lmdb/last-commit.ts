// Number of the last commit: mends a defect of the LMDB binding (lmdb 3.5.6, mdb_env_open2). A process that opens the database reads
// the number of the last commit, and sets the number in the lock file to it a moment later, without a lock. If another process
// commits meanwhile, that number is too small: the next transaction would start from the state before that commit, and replace it.
import { existsSync, fstatSync, readdirSync, readSync, statSync, writeSync } from "node:fs";
import { MAGIC } from "./database-file.ts";

/** Byte offset of the number of the last commit in the lock file. */
const numberAt = 8;
const numberBytes = 8;
/** Folder that lists the open descriptors of this process. */
const descriptors = "/dev/fd";

/** Error that ends a transaction which would replace a newer commit. */
export class StaleTransaction extends Error {}

/**
 * Throws StaleTransaction if the transaction `transaction` does not follow the last commit, `committed`, after it has corrected the number
 * in the lock file. Must be called inside the transaction, because its lock keeps other processes from committing. The number stays wrong
 * if the lock file has another layout, or if the system has no list of descriptors (Windows).
 */
export function checkFollows(transaction: number, committed: number, lockFile: string): void {
  if (transaction > committed) return;
  correct(transaction - 1, committed, lockFile);
  throw new StaleTransaction(`the transaction ${transaction} does not follow the last commit ${committed}`);
}

function correct(wrong: number, right: number, lockFile: string): void {
  const file = openedAs(lockFile);
  const head = Buffer.alloc(numberAt + numberBytes);
  const isKnown =
    file !== null &&
    readSync(file, head, 0, head.length, 0) === head.length &&
    head.readUInt32LE(0) === MAGIC &&
    head.readBigUInt64LE(numberAt) === BigInt(wrong);
  if (!isKnown) return;
  head.writeBigUInt64LE(BigInt(right), numberAt);
  writeSync(file, head, numberAt, numberBytes, numberAt);
}

/**
 * Returns the descriptor with which LMDB has opened the lock file; null if there is none. A descriptor of our own cannot be used: when a
 * process closes any descriptor of a file, it loses all its locks of the file.
 */
function openedAs(path: string): number | null {
  if (!existsSync(descriptors)) return null;
  const { dev, ino } = statSync(path);
  const isSame = (file: number): boolean => {
    try {
      const found = fstatSync(file);
      return found.dev === dev && found.ino === ino;
    } catch {
      return false; // the descriptor of the listing itself is closed by now
    }
  };
  return readdirSync(descriptors).map(Number).find(isSame) ?? null;
}
