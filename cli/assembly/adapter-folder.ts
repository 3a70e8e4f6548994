// Owns the folder that this process keeps prepared adapters in: its own, of this user alone, and gone when it is. What a
// process that was killed left behind is removed by the next one. Called by service-options.ts and by bench.ts.
//
// A model that is loaded again reads them again, weeks later perhaps: so they are not kept where old files are cleared away.
import assert from "node:assert";
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { isAlive, ownIdentity } from "../../actors/state/process-identity.ts";
import { defaultCacheDirectory } from "../../engines/files/hub/model-cache.ts";

/** Makes the folder in the first of the parents that can be written, and sees to it that it goes with this process. */
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
  assert(parent !== undefined, "there is one parent at least");
  try {
    mkdirSync(parent, { recursive: true, mode: 0o700 });
    return mkdtempSync(join(parent, `${prefix()}${ownIdentity().replace(":", ".")}@`));
  } catch (error) {
    if (others.length === 0) throw error;
    return makeIn(others);
  }
}

/** Of the folders of this host: whether a process of another one lives, such as one in a container, cannot be seen. */
function prefix(): string {
  return `troupe-adapters-${hostname().replaceAll(/[^\w.-]/g, "_")}@`;
}

/** Removes the folders of processes that are gone: those of this host and of this user, and no links. */
function removeAbandoned(parent: string): void {
  for (const name of namesIn(parent)) {
    const [identity, random] = name.startsWith(prefix()) ? name.slice(prefix().length).split("@") : [];
    if (identity === undefined || random === undefined || isAlive(identity.replace(".", ":"))) continue;
    const path = join(parent, name);
    try {
      const found = lstatSync(path);
      if (found.isDirectory() && found.uid === (process.getuid?.() ?? found.uid)) rmSync(path, { recursive: true });
    } catch {
      // Another process that starts now may be removing it.
    }
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // A folder that may be written to need not be one that may be read.
    return [];
  }
}
