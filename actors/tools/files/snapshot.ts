// Snapshot of a work folder: the state of its files. Comparing two snapshots shows which files a call has changed.
import { lstat } from "node:fs/promises";
import { relative } from "node:path";
import { fileState, filesBelow } from "./folder-files.ts";

/** Maximum number of files and folders that are checked for changes. */
export const maxScanned = 16_384;
const PARALLEL_STATS = 64;
const ignoredNames = /^\.|^__pycache__$|\.pyc$/;

/** State of the files in a work folder. */
export interface Snapshot {
  /** State of each file, by relative path. Every write to a file changes its state. */
  readonly files: ReadonlyMap<string, string>;
  /** Whether all entries were checked; false = the folder has more than maxScanned entries. */
  readonly isComplete: boolean;
}

/** Snapshot for a folder that is not checked for changes. */
export const noSnapshot: Snapshot = { files: new Map(), isComplete: true };

/** Returns the state of the files, except hidden files, compiled Python files and symbolic links. */
export async function snapshot(path: string): Promise<Snapshot> {
  const { paths, isComplete } = await filesBelow(path, maxScanned, ({ name }) => ignoredNames.test(name));
  const files = new Map<string, string>();
  for (let at = 0; at < paths.length; at += PARALLEL_STATS) {
    const some = paths.slice(at, at + PARALLEL_STATS);
    const states = await Promise.all(some.map(stateOf));
    for (const [i, state] of states.entries()) if (state !== null) files.set(relative(path, some[i] ?? ""), state);
  }
  return { files, isComplete };
}

/** Returns the state of a file; null = it has been removed. */
export async function stateOf(path: string): Promise<string | null> {
  const found = await lstat(path, { bigint: true }).catch(() => null);
  return found === null ? null : fileState(found);
}
