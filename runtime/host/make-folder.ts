// Owns making a folder and those it lies in. Node's own recursion never ends where a folder that exists says that nothing can
// exist in it, as those of the kernel do.
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";

/** Does nothing where it is there. Throws what the file system says. */
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
