// Creation of a folder and its parents. Node's own recursive creation never returns if a parent folder, such as /proc,
// reports ENOENT for new entries.
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";

/** Creates the folder. Does nothing if it exists. Throws the error of the file system. */
export function makeFolder(path: string, mode: number): void {
  try {
    makeOne(path, mode);
  } catch (error) {
    const parent = dirname(path);
    if (codeOf(error) !== "ENOENT" || parent === path) throw error;
    makeFolder(parent, mode);
    makeOne(path, mode);
  }
}

function makeOne(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error;
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}
