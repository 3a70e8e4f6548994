// Default model: the model to serve if the user names none. It depends on the cached models, the network and the free
// memory. Also resolves the names of the catalog to files. Called by cli/default-config.ts and resolve-model.ts.
import { ServerError } from "../../../runtime/errors.ts";
import { listRepo } from "./api/hub-api.ts";
import { createHubContext, type HubContext, hurried } from "./api/hub-context.ts";
import { hubCacheDirectory, isOffline } from "./api/hub-locations.ts";
import { type CatalogModel, catalogModel, memoryBytes, smallestModel } from "./catalog.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { findCached, resolveHubFiles } from "./hub-model.ts";
import { type HubSource, parseHubSource } from "./hub-source.ts";
import { defaultCacheDirectory } from "./model-cache.ts";
import { findCachedPackage, type PackageSource, parsePackageSource, resolvePackageModel } from "./package-source.ts";

/**
 * Candidates for the default model that only the hub has, best first. If none can be used, the smallest model is
 * chosen.
 */
const candidates = ["qwen3-0.6b", "smollm2-360m-instruct"];

/**
 * Returns the name of the model to serve if the user names none. The first of these rules that applies is used: 1. the
 * best candidate that is cached and fits into `availableBytes` of memory; 2. the smallest model, if it is cached; 3.
 * the best candidate that fits, if the hub answers one request with short limits; 4. the smallest model.
 */
export async function chooseDefaultModel(availableBytes: number, options: FetchOptions = {}): Promise<string> {
  const { environment = process.env } = options;
  const cache = hubCacheDirectory(environment, options.hfCache);
  const fitting = candidates.map(entryOf).filter((model) => memoryBytes(model) <= availableBytes);
  for (const model of fitting)
    if ((await findCached({ source: hubSourceOf(model), cache })) !== null) return model.name;
  const [best] = fitting;
  if (best === undefined || isOffline(environment)) return smallestModel;
  const cacheDirectory = options.cacheDirectory ?? defaultCacheDirectory(environment);
  if ((await findHere(entryOf(smallestModel), { ...options, cacheDirectory, hubCache: cache })) !== null)
    return smallestModel;
  try {
    await listRepo(hurried(await createHubContext(options)), hubSourceOf(best));
    return best.name;
  } catch (error) {
    if (!(error instanceof ServerError) || error.code === "cancelled" || error.code === "config_invalid") throw error;
    return smallestModel;
  }
}

interface CatalogFetch extends FetchOptions {
  readonly cacheDirectory: string;
  readonly hubCache: string;
  /** null = requests to the hub are forbidden. */
  readonly context: HubContext | null;
}

/**
 * Returns the path of a model of the catalog. Tries in this order: a copy on this machine, the hub, the package. If
 * there is a package, the hub gets one attempt with short limits. Reports size and licence before a download.
 */
export async function resolveCatalogModel(model: CatalogModel, options: CatalogFetch): Promise<string> {
  const { hubCache: cache, context, onNotice, onProgress } = options;
  const here = await findHere(model, options);
  if (here !== null) return here;
  const carried = packageOf(model);
  if (carried !== null && context === null) return await resolvePackageModel(carried, options);
  onNotice?.(`${model.name} is downloaded: ${Math.round(model.bytes / 1e6)} MB, licence ${model.licence}`);
  const hub = { source: hubSourceOf(model), cache };
  if (carried === null) return await resolveHubFiles({ ...hub, context, onProgress, onNotice });
  let problem: ServerError;
  try {
    return await resolveHubFiles({ ...hub, context, isOptional: true, onProgress, onNotice });
  } catch (error) {
    if (!(error instanceof ServerError) || error.code === "cancelled") throw error;
    problem = error;
  }
  onNotice?.(`${model.name} is taken from a Python package: ${problem.message}`);
  try {
    return await resolvePackageModel(carried, options);
  } catch (error) {
    if (!(error instanceof ServerError) || error.code === "cancelled") throw error;
    throw new ServerError(error.code, `${problem.message}\n${error.message}`, { param: "model_id", cause: error });
  }
}

/** Returns the path of a cached copy of the model, from the hub or from a package; null if there is none. */
async function findHere(
  model: CatalogModel,
  options: FetchOptions & Pick<CatalogFetch, "cacheDirectory" | "hubCache">,
): Promise<string | null> {
  const cached = await findCached({ source: hubSourceOf(model), cache: options.hubCache });
  const carried = packageOf(model);
  return cached ?? (carried === null ? null : await findCachedPackage(carried, options));
}

function entryOf(name: string): CatalogModel {
  return parsed(catalogModel(name), name);
}

function hubSourceOf({ source }: CatalogModel): HubSource {
  return parsed(parseHubSource(source), source);
}

function packageOf({ package: source }: CatalogModel): PackageSource | null {
  return source === null ? null : parsed(parsePackageSource(source), source);
}

/** Returns the parsed source. Throws if the catalog has an invalid one. */
function parsed<T>(found: T | null, source: string): T {
  if (found === null) throw new Error(`the catalog has an invalid source: ${source}`);
  return found;
}
