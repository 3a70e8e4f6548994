// Model cache for packages. Each package version has a folder `models/pypi/<package>/<version>/` with its model files
// and a manifest.json, which lists the files with size and hash. A complete file is renamed to its final name, so
// parallel or interrupted starts never leave a partial file under that name. Called by package-source.ts.
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { z } from "zod";
import { ServerError } from "../../../runtime/errors.ts";
import { homeFolder } from "../../../runtime/host/home.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { hashFile } from "./download/hash-file.ts";

const cachedFileType = z.object({
  /** Path of the file inside the package. */
  member: z.string(),
  bytes: z.int(),
  /** sha256 of the file in hex. */
  sha256: z.string(),
});
const manifestType = z.object({ files: z.array(cachedFileType) });

/** A model file of a package. */
export type CachedFile = Readonly<z.infer<typeof cachedFileType>>;

const scratchPrefix = "fetch-";
const scratchLifetimeMs = 24 * 60 * 60 * 1000;

export function defaultCacheDirectory(environment: Readonly<Record<string, string | undefined>>): string {
  return join(environment.XDG_CACHE_HOME || join(homeFolder(), ".cache"), "troupe");
}

export function packageRoot(cacheDirectory: string): string {
  return join(cacheDirectory, "models", "pypi");
}

/** Returns the folder of converted and quantized models, which has one file per model. */
export function convertedFolder(cacheDirectory: string): string {
  return join(cacheDirectory, "models", "converted");
}

export function packageDirectory(cacheDirectory: string, packageName: string): string {
  return join(packageRoot(cacheDirectory), packageName);
}

/** Lists the cached versions of a package, the most recently fetched first. */
export async function cachedVersions(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  const dated = await Promise.all(
    names.map(async (name) => ({
      name,
      time: (await stat(manifestPath(join(directory, name))).catch(() => null))?.mtimeMs,
    })),
  );
  const complete = dated.flatMap(({ name, time }) => (time === undefined ? [] : [{ name, time }]));
  return complete.sort((a, b) => b.time - a.time).map(({ name }) => name);
}

/** Returns the model files listed for a cached version; null if it is not cached or its manifest is invalid. */
export async function readManifest(directory: string): Promise<readonly CachedFile[] | null> {
  try {
    return manifestType.parse(JSON.parse(await readFile(manifestPath(directory), "utf8"))).files;
  } catch {
    // A missing manifest and a damaged one have the same effect: the package is fetched again.
    return null;
  }
}

/**
 * Returns the path of a cached file; null if it is absent or damaged. Normally a file is older than its manifest, which
 * is written last. A newer file may have been modified, so it is hashed again.
 */
export async function findCached(
  directory: string,
  file: CachedFile,
  onProgress: FetchOptions["onProgress"],
): Promise<string | null> {
  const path = cachedPath(directory, file);
  const [found, manifest] = await Promise.all(
    [path, manifestPath(directory)].map((name) => stat(name).catch(() => null)),
  );
  if (!found || !manifest || found.size !== file.bytes) return null;
  if (found.mtimeMs <= manifest.mtimeMs) return path;
  if ((await hashFile(path, file.bytes, onProgress)) !== file.sha256) return null;
  const now = new Date();
  // If the cache is read-only, the manifest's time cannot be updated, and the file is hashed again at the next start.
  await utimes(manifestPath(directory), now, now).catch(() => undefined);
  return path;
}

/**
 * Moves a verified file from its temporary folder into the cache, and writes the manifest of its version. Returns the
 * file's path.
 */
export async function store(
  directory: string,
  file: CachedFile,
  files: readonly CachedFile[],
  scratchPath: string,
): Promise<string> {
  await mkdir(directory, { recursive: true });
  const path = cachedPath(directory, file);
  await rename(scratchPath, path);
  const manifest = `${scratchPath}.manifest`;
  await writeFile(manifest, JSON.stringify({ files }, null, 2));
  await rename(manifest, manifestPath(directory));
  return path;
}

/** Runs `work` with a temporary directory on the cache's file system, and removes the directory afterwards. */
export async function withScratch<T>(cacheDirectory: string, work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await createScratch(cacheDirectory);
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function createScratch(cacheDirectory: string): Promise<string> {
  const parent = join(cacheDirectory, "tmp");
  try {
    await mkdir(parent, { recursive: true });
    await removeAbandoned(parent);
    return await mkdtemp(join(parent, scratchPrefix));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const message = `the cache "${cacheDirectory}" cannot be written (${code}); set XDG_CACHE_HOME to a directory that can`;
    throw new ServerError("config_invalid", message, { cause });
  }
}

/** Removes temporary directories that killed processes left behind. */
async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const path = join(parent, name);
    const found = name.startsWith(scratchPrefix) ? await stat(path).catch(() => null) : null;
    if (found && Date.now() - found.mtimeMs > scratchLifetimeMs) await rm(path, { recursive: true, force: true });
  }
}

function cachedPath(directory: string, file: CachedFile): string {
  return join(directory, basename(file.member));
}

function manifestPath(directory: string): string {
  return join(directory, "manifest.json");
}
