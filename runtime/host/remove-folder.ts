// Removal of a folder and its content, even if the permissions of its folders forbid the removal. Symbolic links are
// not followed, unless another process changes the folder during the removal. So end the processes of untrusted code
// first.
import { chmodSync, type Dirent, readdirSync, rmSync } from "node:fs";
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

/** Gives this user all permissions for the folder and its subfolders. Files can then be removed whatever their permissions. */
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
    for (const entry of entries) if (entry.isDirectory()) open.push(join(folder, entry.name));
  }
}
