// Files of a folder: lists and opens the files, and detects whether a file has changed.
import { type BigIntStats, constants, type Dirent } from "node:fs";
import { type FileHandle, open, readdir, readlink, realpath } from "node:fs/promises";
import { basename, dirname, join, sep } from "node:path";

/**
 * Lists the regular files in a folder and its subfolders; links are not followed, even if code replaces a folder by a link meanwhile.
 * Stops after `maxEntries` files and folders.
 */
export async function filesBelow(
  folder: string,
  maxEntries: number,
  isSkipped: (entry: Dirent) => boolean,
): Promise<{ readonly paths: readonly string[]; readonly isComplete: boolean }> {
  const paths: string[] = [];
  const folders = [folder];
  const root = await realpath(folder).catch(() => folder);
  let count = 0;
  for (let next = folders.pop(); next !== undefined && count <= maxEntries; next = folders.pop()) {
    // A folder that was removed during the scan, or that cannot be read, counts as empty.
    const entries = await entriesOf(next, root).catch(() => []);
    count += entries.length;
    for (const entry of entries.slice(0, maxEntries)) {
      if (isSkipped(entry)) continue;
      if (entry.isDirectory()) folders.push(join(next, entry.name));
      else if (entry.isFile()) paths.push(join(next, entry.name));
    }
  }
  return { paths, isComplete: count <= maxEntries };
}

/** Lists the entries of a folder. Rejects if it is a link, or if a link in its path leads out of `root`, a path without links. */
async function entriesOf(folder: string, root: string): Promise<readonly Dirent[]> {
  // Windows opens no folders, and has no sandbox.
  if (process.platform === "win32") return await readdir(folder, { withFileTypes: true });
  const opened = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    const path = `/proc/self/fd/${opened.fd}`;
    const target = await readlink(path).catch(() => null);
    // Without /proc there is no sandbox, so the code can list every folder that the server can list anyway.
    if (target === null) return await readdir(folder, { withFileTypes: true });
    if (!isWithin(target, root)) throw new Error("a link leads out of the folder");
    // The open folder is listed and not its path, which may be a link by now.
    return await readdir(path, { withFileTypes: true });
  } finally {
    await opened.close();
  }
}

/**
 * Opens a file of a folder for reading; a link at the end of its path is not followed. Returns null if the file does not exist, or if a
 * link in its path leads out of the folder, whether or not it exists there: code must not learn which files the host has. Rejects if the
 * file exists but cannot be opened.
 */
export async function openFile(folder: string, name: string): Promise<FileHandle | null> {
  const path = join(folder, name);
  // Windows opens no folders, and has no sandbox.
  if (process.platform === "win32") return await openUnlessMissing(path);
  const parent = await open(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY).catch(() => null);
  if (parent === null) return null;
  try {
    const opened = `/proc/self/fd/${parent.fd}`;
    const target = await readlink(opened).catch(() => null);
    // Without /proc there is no sandbox, so the code can read every file that the server can read anyway.
    if (target === null) return await openUnlessMissing(path);
    return isWithin(target, await realpath(folder)) ? await openUnlessMissing(join(opened, basename(path))) : null;
  } finally {
    await parent.close();
  }
}

async function openUnlessMissing(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder + sep);
}

/** Returns the state of a file as a string. Every write to the file changes it. */
export function fileState({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}
