// Process folder: a private folder of this process that is removed at its end. The next start removes folders of killed processes.
import { lstatSync, mkdirSync, mkdtempSync, readdirSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { isAlive, ownIdentity } from "./process-identity.ts";
import { removeFolderSync } from "./remove-folder.ts";

/**
 * Creates the folder in the first parent that is writable. `kind`: purpose of the folder; it becomes part of the folder's name.
 */
export function createProcessFolder(kind: string, parents: readonly [...string[], string]): string {
  const prefix = prefixOf(kind);
  for (const parent of parents) removeAbandoned(parent, prefix);
  const folder = makeIn(parents, prefix);
  process.on("exit", () => removeFolderSync(folder));
  return folder;
}

function makeIn([parent, ...others]: readonly string[], prefix: string): string {
  if (parent === undefined) throw new Error("there is at least one parent");
  try {
    mkdirSync(parent, { recursive: true, mode: 0o700 });
    return mkdtempSync(join(parent, `${prefix}${ownIdentity().replace(":", ".")}@`));
  } catch (error) {
    if (others.length === 0) throw error;
    return makeIn(others, prefix);
  }
}

/**
 * Returns the prefix of the folder's name. It includes the host name, because a process cannot see whether a process on another
 * host or in another container is alive.
 */
function prefixOf(kind: string): string {
  return `troupe-${kind}-${hostname().replaceAll(/[^\w.-]/g, "_")}@`;
}

/** Removes folders of dead processes of this host and user. Symbolic links are skipped. */
function removeAbandoned(parent: string, prefix: string): void {
  for (const name of namesIn(parent)) {
    if (!isOfDeadProcess(prefix, name)) continue;
    const path = join(parent, name);
    try {
      const found = lstatSync(path);
      if (found.isDirectory() && found.uid === (process.getuid?.() ?? found.uid)) removeFolderSync(path);
    } catch {
      // Ignore the error, because another starting process may be removing the same folder.
    }
  }
}

/** Returns whether `name` is the name of a process folder of this kind whose process ran on this host and is dead. */
export function isAbandonedFolder(kind: string, name: string): boolean {
  return isOfDeadProcess(prefixOf(kind), name);
}

function isOfDeadProcess(prefix: string, name: string): boolean {
  const [identity, random] = name.startsWith(prefix) ? name.slice(prefix.length).split("@") : [];
  return identity !== undefined && random !== undefined && !isAlive(identity.replace(".", ":"));
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // A folder may be writable but not readable.
    return [];
  }
}
