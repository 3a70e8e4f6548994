// Removal of the database that earlier releases used, before table-store.ts. No other code reads this database, and no size
// limit counts it. Blocks on the disk.
import { rmdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { open } from "lmdb";
import { checkLmdbFile } from "./lmdb/database-file.ts";

/**
 * Tables of the earlier database: the keys [born, key] of all entries, the two parts of each entry, and the number of entries.
 */
const earlierTables = ["ages", "heads", "rests", "sums"];

export interface RemovedStore {
  readonly folder: string;
  readonly entries: number;
  /** Size of the database file in bytes. */
  readonly bytes: number;
}

/** Removes the earlier database. Returns null if the folder has none. Throws if it cannot be read or removed. */
export async function removeEarlierStore(folder: string): Promise<RemovedStore | null> {
  const file = join(folder, "data.mdb");
  const bytes = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (bytes === 0) return null;
  checkLmdbFile(file);
  const entries = await countEntries(folder);
  if (entries === null) return null;
  for (const name of ["data.mdb", "lock.mdb"]) rmSync(join(folder, name), { force: true });
  try {
    rmdirSync(folder);
  } catch {
    // The error is ignored: the folder contains other files.
  }
  return { folder, entries, bytes };
}

/** Returns the number of entries; null if it is another database. */
async function countEntries(folder: string): Promise<number | null> {
  const root = open({ path: folder, noSubdir: false, readOnly: true, maxDbs: earlierTables.length });
  try {
    const names = [...root.getKeys()].map(String).sort();
    if (names.join() !== earlierTables.join()) return null;
    const count = root.openDB<number, string>({ name: "sums" }).get("entries");
    return typeof count === "number" ? count : 0;
  } finally {
    await root.close();
  }
}
