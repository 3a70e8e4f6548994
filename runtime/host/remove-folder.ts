// Removal of a folder and its content, even if the permissions of its folders forbid the removal. Links are not followed if no
// other process changes the folder meanwhile. So the processes of code that is not trusted must have ended.
import { chmodSync, type Dirent, readdirSync, rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";

const options = { recursive: true, force: true } as const;

/** Does nothing if the folder does not exist. Throws the error of the file system. */
export async function removeFolder(path: string): Promise<void> {
  try {
    await rm(path, options);
  } catch {
    allowRemoval(path);
    await rm(path, options);
  }
}

/** Like removeFolder, for the start and the end of a process. */
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
