// Files of a folder: lists the files, and detects whether a file has changed.
import type { BigIntStats, Dirent } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";

/** Lists the regular files in a folder and its subfolders; links are not followed. Stops after `maxEntries` files and folders. */
export async function filesBelow(
  folder: string,
  maxEntries: number,
  isSkipped: (entry: Dirent) => boolean,
): Promise<{ readonly paths: readonly string[]; readonly isComplete: boolean }> {
  const paths: string[] = [];
  const folders = [folder];
  let count = 0;
  for (let next = folders.pop(); next !== undefined && count <= maxEntries; next = folders.pop()) {
    // A folder that was removed during the scan, or that cannot be read, counts as empty.
    const entries: readonly Dirent[] = await readdir(next, { withFileTypes: true }).catch(() => []);
    count += entries.length;
    for (const entry of entries.slice(0, maxEntries)) {
      if (isSkipped(entry)) continue;
      if (entry.isDirectory()) folders.push(join(next, entry.name));
      else if (entry.isFile()) paths.push(join(next, entry.name));
    }
  }
  return { paths, isComplete: count <= maxEntries };
}

/** Returns the state of a file as a string. Every write to the file changes it. */
export function fileState({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}
