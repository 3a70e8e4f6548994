// Folder of this process for prepared adapters: private to the user, removed at exit. Folders of killed processes are removed by
// the next start. Used by service-options.ts and bench.ts.
//
// A reload, perhaps weeks later, reads the files again, so the folder is not in a place where old files are deleted.
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

/** This program's cache, or else the system's folder for temporary files. */
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

/** Includes the host name: whether a process of another host or container is alive cannot be seen. */
function prefix(): string {
  return `troupe-adapters-${hostname().replaceAll(/[^\w.-]/g, "_")}@`;
}

/** Removes folders of dead processes of this host and user; links are skipped. */
function removeAbandoned(parent: string): void {
  for (const name of namesIn(parent)) {
    const [identity, random] = name.startsWith(prefix()) ? name.slice(prefix().length).split("@") : [];
    if (identity === undefined || random === undefined || isAlive(identity.replace(".", ":"))) continue;
    const path = join(parent, name);
    try {
      const found = lstatSync(path);
      if (found.isDirectory() && found.uid === (process.getuid?.() ?? found.uid)) rmSync(path, { recursive: true });
    } catch {
      // Another starting process may be removing it.
    }
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // A writable folder may be unreadable.
    return [];
  }
}
