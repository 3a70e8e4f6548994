// Removal of a folder and its content, even if the permissions of its folders forbid the removal. Symbolic links are
// not followed, unless another process changes the folder during the removal. So end the processes of untrusted code
// first.
import { randomBytes } from "node:crypto";
import { chmodSync, type Dirent, readdirSync, renameSync, rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";

const options = { recursive: true, force: true } as const;

/** Removes the folder. Does nothing if it does not exist. Throws the error of the file system. */
export async function removeFolder(path: string): Promise<void> {
  try {
    await rm(path, options);
  } catch {
    allowRemoval(path);
    await rm(path, options);
  }
}

/** Synchronous form of removeFolder, for the start and the end of a process. */
export function removeFolderSync(path: string): void {
  try {
    rmSync(path, options);
  } catch {
    allowRemoval(path);
    rmSync(path, options);
  }
}

/** Length of a path in bytes from which a folder is moved to the top. The system accepts paths of at most 4095 bytes. */
const longPathBytes = 2048;

/**
 * Gives this user all permissions for the folder and its subfolders. Files can then be removed whatever their permissions. Moves deep
 * subfolders to the top, because the system accepts no path to their content.
 */
function allowRemoval(path: string): void {
  const open = [path];
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    let entries: Dirent[];
    try {
      chmodSync(folder, 0o700);
      entries = readdirSync(folder, { withFileTypes: true });
    } catch {
      // The next attempt to remove the folder reports the error.
      continue;
    }
    for (const entry of entries) if (entry.isDirectory()) open.push(atTop(path, join(folder, entry.name)));
  }
}

/** Moves a folder to the top of `root` if its path is long. Returns its path. */
function atTop(root: string, folder: string): string {
  if (Buffer.byteLength(folder) <= longPathBytes) return folder;
  const moved = join(root, `.deep-${randomBytes(8).toString("hex")}`);
  try {
    renameSync(folder, moved);
    return moved;
  } catch {
    // The next attempt to remove the folder reports the error.
    return folder;
  }
}
