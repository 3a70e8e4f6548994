// Options of InferenceService, from the settings: downloads missing models, chooses their engines, and sets limits. Used by
// serve and run. This module starts nothing.
import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import type { ServedModel, ServiceOptions } from "../../actors/front/inference-service.ts";
import type { TextTaskSettings } from "../../actors/messages.ts";
import type { PrefixStoreOptions } from "../../engines/decoding/prefix-store/prefix-store.ts";
import { ownCpuQuota } from "../../runtime/host/cores.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config } from "../config/config.ts";
import type { Progress } from "../progress.ts";
import { createAdapterFolder } from "./adapters/adapter-folder.ts";
import { adapterRoot, takesAdapters } from "./adapters/model-adapters.ts";
import { ModelBuilder } from "./models/model-builder.ts";
import { schedulerLimits } from "./models/model-specs.ts";
import { type DraftedModel, speculationOptions } from "./models/speculation.ts";
import { speechLimits } from "./models/speech.ts";
import { requantizer } from "./quantization/requantize.ts";

/** Time limit in ms for the worker threads and processes to stop after the last generation. */
export const placeStopMs = 5000;

const mailboxLimit = 4096;
/** Number of unread events of a stream at which its generation is paused. */
const streamWindow = 256;
/**
 * Number of CPU cores per text worker. One worker prepares a few hundred requests per second, which is more than the engine of
 * a small machine can process.
 */
const coresPerTextWorker = 8;
const maxTextWorkers = 4;
/**
 * Minimum number of cores for two slow text tasks at the same time. With fewer cores only one runs, because each slow task
 * occupies a core.
 */
const coresOfTwoSlow = 4;

/** Options of InferenceService, and the builder for models that are added later. */
export interface FrontSettings extends ServiceOptions {
  readonly builder: ModelBuilder;
}

export async function frontOptions(config: Config, log: Logger, progress: Progress): Promise<FrontSettings> {
  const { troupe } = config;
  const root = adapterRoot(config);
  const adapterFolder = takesAdapters(config) ? createAdapterFolder() : "";
  const builder = new ModelBuilder({ config, folder: adapterFolder, log, progress });
  const models: ServedModel[] = [];
  for (const model of config.models) models.push(await builder.build(model));
  const speculation = await speculationOptions(config, firstOf(config, models), log, progress);
  progress.stop();
  return {
    models,
    builder,
    defaultModelId: config.defaultModelId,
    defaultSeed: config.seed,
    limits: schedulerLimits(config),
    adapterFolder,
    adapterRoot: root,
    maxLoadedModels: troupe.maxLoadedModels,
    idleUnloadMs: troupe.idleUnloadSecs * 1000,
    frameIntervalMs: troupe.frameIntervalMs,
    generationPlace: {
      mailboxLimit,
      streamWindow,
      textTasks: textTasks(troupe),
    },
    speculation,
    prefixStore: prefixStore(troupe),
    speechLimits: speechLimits(config),
    restart: { kind: "restart", minBackoffMs: 500, maxBackoffMs: 30_000, resetAfterMs: 5000, maxRestarts: 5 },
    loadTimeoutMs: troupe.loadTimeoutSecs * 1000,
    log,
    requantize: requantizer(builder.convertible, troupe.threads, log),
    onLoadProgress: (id, fraction) => progress.update(`load ${id}`, fraction, 1),
  };
}

function textTasks({ textTaskSecs, textTaskMemory, textTaskQueue }: Config["troupe"]): TextTaskSettings {
  const cores = Math.min(availableParallelism(), Math.ceil(ownCpuQuota()));
  return {
    translators: new URL("../../http/shared/body-translators.js", import.meta.url).href,
    quickWorkers: Math.min(Math.max(1, Math.floor(cores / coresPerTextWorker)), maxTextWorkers),
    slowWorkers: cores < coresOfTwoSlow ? 1 : 2,
    maxQueued: textTaskQueue,
    limitSeconds: textTaskSecs,
    heapMiB: Math.floor(textTaskMemory / 2 ** 20),
  };
}

function prefixStore({ prefixCacheDir, prefixCacheDisk }: Config["troupe"]): PrefixStoreOptions | null {
  return prefixCacheDir === null ? null : { folder: resolve(prefixCacheDir), maxBytes: prefixCacheDisk };
}

/**
 * Returns the target model for a draft model: the first model, because a draft model requires that there is only one model;
 * null if that model runs on other servers.
 */
function firstOf(config: Config, [served]: readonly ServedModel[]): DraftedModel | null {
  const [model] = config.models;
  assert(model !== undefined && served !== undefined, "there is at least one model");
  if (served.engine === "remote") return null;
  return { model, engine: served.engine, spec: served.spec };
}
