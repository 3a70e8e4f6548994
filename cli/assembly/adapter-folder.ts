// Folder in which this process keeps prepared adapters. It is private to the user and removed at exit. The next start removes
// folders of killed processes. Used by service-options.ts and bench.ts.
//
// The folder is preferably in the cache, because the system deletes old files from its temporary folder, and a model that is
// reloaded weeks later needs its adapters again.
import assert from "node:assert";
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { isAlive, ownIdentity } from "../../actors/state/process-identity.ts";
import { defaultCacheDirectory } from "../../engines/files/hub/model-cache.ts";

/** Creates the folder in the first parent that is writable, and removes it at exit. */
export function createAdapterFolder(parents: readonly [...string[], string] = usualParents()): string {
  for (const parent of parents) removeAbandoned(parent);
  const folder = makeIn(parents);
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns the candidate parent folders: this program's cache, then the system's folder for temporary files. */
function usualParents(): [string, string] {
  return [join(defaultCacheDirectory(process.env), "adapters"), tmpdir()];
}

function makeIn([parent, ...others]: readonly string[]): string {
  assert(parent !== undefined, "there is at least one parent");
  try {
    mkdirSync(parent, { recursive: true, mode: 0o700 });
    return mkdtempSync(join(parent, `${prefix()}${ownIdentity().replace(":", ".")}@`));
  } catch (error) {
    if (others.length === 0) throw error;
    return makeIn(others);
  }
}

/**
 * Prefix of the folder's name. It includes the host name, because a process cannot see whether a process on another host or in
 * another container is alive.
 */
function prefix(): string {
  return `troupe-adapters-${hostname().replaceAll(/[^\w.-]/g, "_")}@`;
}

/** Removes folders of dead processes of this host and user. Symbolic links are skipped. */
function removeAbandoned(parent: string): void {
  for (const name of namesIn(parent)) {
    const [identity, random] = name.startsWith(prefix()) ? name.slice(prefix().length).split("@") : [];
    if (identity === undefined || random === undefined || isAlive(identity.replace(".", ":"))) continue;
    const path = join(parent, name);
    try {
      const found = lstatSync(path);
      if (found.isDirectory() && found.uid === (process.getuid?.() ?? found.uid)) rmSync(path, { recursive: true });
    } catch {
      // Another starting process may be removing the same folder.
    }
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // A folder may be writable but not readable.
    return [];
  }
}
