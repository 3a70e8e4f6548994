// Hub cache layout. It is the layout of the hub's Python library, so both programs share downloaded files:
//   models--owner--name/refs/<revision>           commit of the revision at the last request
//   models--owner--name/blobs/<etag>              the bytes
//   models--owner--name/snapshots/<commit>/<path> -> ../../blobs/<etag>
// Called by hub-model.ts and blob-download.ts. No network access.
import { randomUUID } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, rename, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { isCommit } from "../hub-source.ts";

export const repoPrefix = "models--";

export function repoFolder(cache: string, repo: string): string {
  return join(cache, `${repoPrefix}${repo.replace("/", "--")}`);
}

export function blobPath(folder: string, etag: string): string {
  return join(folder, "blobs", etag);
}

/** Returns the folder for the lock files of a repository's downloads. */
export function lockFolder(cache: string, repo: string): string {
  return join(cache, ".locks", `${repoPrefix}${repo.replace("/", "--")}`);
}

export function snapshotPath(folder: string, commit: string, path: string): string {
  return join(folder, "snapshots", commit, ...path.split("/"));
}

/** Returns the commit of a revision at the last request; null if it was never requested. */
export async function cachedCommit(folder: string, revision: string): Promise<string | null> {
  const text = await readFile(join(folder, "refs", ...revision.split("/")), "utf8").catch(() => null);
  const commit = text?.trim() ?? (isCommit(revision) ? revision : "");
  return /^[\w-]{1,64}$/.test(commit) ? commit : null;
}

export async function writeRef(folder: string, revision: string, commit: string): Promise<void> {
  const path = join(folder, "refs", ...revision.split("/"));
  if (revision === commit || (await readFile(path, "utf8").catch(() => null)) === commit) return;
  await mkdir(dirname(path), { recursive: true });
  const temporary = temporaryName(path);
  await writeFile(temporary, commit);
  await rename(temporary, path);
}

/** Returns the sizes in bytes of the complete files of a commit, by their paths in the repository. */
export async function cachedSizes(folder: string, commit: string): Promise<Map<string, number>> {
  const root = join(folder, "snapshots", commit);
  const names = await readdir(root, { recursive: true }).catch(() => []);
  const sizes = await Promise.all(names.map(async (name) => [name, await sizeOf(join(root, name))] as const));
  return new Map(sizes.flatMap(([name, size]) => (size === null ? [] : [[name.split(sep).join("/"), size] as const])));
}

/** Returns the size in bytes of a file or of a link's target; null if it does not exist. */
export async function sizeOf(path: string): Promise<number | null> {
  const found = await stat(path).catch(() => null);
  return found?.isFile() ? found.size : null;
}

/**
 * Adds a blob to a snapshot as a relative link. On a file system without links, the blob is moved into the snapshot. If
 * `isShared`, the blob is copied instead, because another snapshot may need it.
 */
export async function linkSnapshot(
  blob: string,
  pointer: string,
  { isShared, link = symlink }: { readonly isShared: boolean; readonly link?: typeof symlink },
): Promise<void> {
  await mkdir(dirname(pointer), { recursive: true });
  const temporary = temporaryName(pointer);
  try {
    await link(relative(dirname(pointer), blob), temporary);
  } catch {
    if (isShared) await copyFile(blob, temporary);
    else await rename(blob, temporary);
  }
  await rename(temporary, pointer);
}

/** Returns a temporary name in the folder of the path, because a rename works only within one file system. */
function temporaryName(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}
