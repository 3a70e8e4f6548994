// Requested model: finds the model that a client names in POST /v1/models/tune. Nothing is downloaded, because a client must not fill the
// disk of the server, and no file outside the folders of models is opened.
import { realpath, stat } from "node:fs/promises";
import { dirname, sep } from "node:path";
import type { TuneRequest } from "../../actors/api/tuning.ts";
import { hubCacheDirectory } from "../../engines/files/hub/api/hub-locations.ts";
import { resolveHubFiles } from "../../engines/files/hub/hub-model.ts";
import { parseHubSource } from "../../engines/files/hub/hub-source.ts";
import { findLocalModel } from "../../engines/files/hub/local-model.ts";
import { convertedFolder, defaultCacheDirectory, packageRoot } from "../../engines/files/hub/model-cache.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { resolveSource } from "../assembly/models/model-specs.ts";
import type { Config, ModelConfig } from "../config/config.ts";

export interface RequestedModel {
  /** Settings of the model; null if it is not configured. */
  readonly model: ModelConfig | null;
  readonly modelId: string;
  readonly path: string;
}

/** Finds a model on this machine. Throws `model_not_found`. */
export async function requestedModel(config: Config, request: TuneRequest, log: Logger): Promise<RequestedModel> {
  const { models, defaultModelId } = config;
  const { model: name, level, revision } = request;
  const wanted = name === "default" ? defaultModelId : name;
  const model = models.find(({ id, modelId }) => id === wanted || modelId === wanted);
  try {
    if (model === undefined) return { model: null, ...(await unconfigured(config, name, revision)) };
    const tuned = withLevel(model, level);
    const progress = { update: () => {}, stop: () => {} };
    const environment = { ...process.env, HF_HUB_OFFLINE: "1" };
    const path = await resolveSource(config, tuned, log, progress, { environment });
    return { model: tuned, modelId: model.modelId, path };
  } catch (cause) {
    const known = models.map(({ id }) => JSON.stringify(id)).join(", ");
    const reason = toErrorRecord(cause).message.slice(0, 300);
    const message = `no model ${JSON.stringify(name.slice(0, 200))} is on this machine; configured are ${known} (${reason})`;
    throw new ServerError("model_not_found", message, { param: "model_id", cause });
  }
}

/** Returns the settings with the level of the request as `quant`, if the settings choose the file by it. */
function withLevel(model: ModelConfig, level: string | null): ModelConfig {
  const { quantization } = model;
  return level === null || quantization.quant === null
    ? model
    : { ...model, quantization: { ...quantization, quant: level } };
}

/** Finds a model that is not configured: a file among those of models, or a model of the hub that is in the cache. */
async function unconfigured(config: Config, name: string, revision: string | null) {
  const real = await realpath(name).catch(() => null);
  if (real !== null && (await isModelFile(config, real))) {
    // The error of another file would contain its first bytes.
    const path = await findLocalModel(name, null).catch(() => null);
    if (path === null) throw new ServerError("model_not_found", "it is not a model file, or cannot be read");
    return { modelId: name, path };
  }
  const modelId = revision === null ? name : name.replace(/^([^:]+)/, `$1@${revision}`);
  const source = parseHubSource(modelId);
  if (source === null) {
    const expected = "the path of a file beside a configured model or in a cache of models, or a name of the hub";
    throw new ServerError("model_not_found", `expected ${expected}`);
  }
  const cache = hubCache(config);
  const path = await resolveHubFiles({ source, cache, context: null, onProgress: undefined, onNotice: undefined });
  return { modelId, path };
}

function hubCache({ models }: Config): string {
  return hubCacheDirectory(process.env, models[0]?.device.hfCache);
}

/** Whether a path leads to a file beside a configured model, or into a cache of models. `path`: a path without links. */
async function isModelFile(config: Config, path: string): Promise<boolean> {
  const cacheDirectory = defaultCacheDirectory(process.env);
  const caches = [hubCache(config), packageRoot(cacheDirectory), convertedFolder(cacheDirectory)];
  const foldersOfModels = config.models.map(async ({ modelId }) => {
    return (await stat(modelId)).isDirectory() ? realpath(modelId) : realpath(dirname(modelId));
  });
  const found = (folders: readonly Promise<string>[]) => Promise.all(folders.map((folder) => folder.catch(() => null)));
  const isInCache = (await found(caches.map((folder) => realpath(folder)))).some(
    (folder) => folder !== null && path.startsWith(folder + sep),
  );
  if (isInCache) return true;
  return (await stat(path)).isFile() && (await found(foldersOfModels)).includes(dirname(path));
}
