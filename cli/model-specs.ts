// Owns what the settings say about models turned into what the engine is told: fetches each model and makes its spec.
import type { ModelSpec } from "../engines/engine.ts";
import { resolveModel } from "../engines/hub/resolve-model.ts";
import type { SchedulerLimits } from "../engines/scheduler/scheduler.ts";
import type { Config, ModelConfig } from "../runtime/config/config.ts";
import type { Logger } from "../runtime/log.ts";
import type { Progress } from "./progress.ts";

/** Fetches what is not on this machine yet and describes how the engine is to load it. */
export async function modelSpec(
  config: Config,
  model: ModelConfig,
  log: Logger,
  progress: Progress,
): Promise<ModelSpec> {
  const { path } = await resolveModel(model.modelId, {
    tokenSource: config.tokenSource,
    hfCache: model.device.hfCache,
    quantizedFile: model.format.quantizedFile,
    onNotice: (message) => log.info({ model: model.modelId }, message),
    onProgress: ({ phase, doneBytes, totalBytes }) =>
      progress.update(`${phase} ${model.modelId}`, doneBytes, totalBytes),
  });
  const { cacheType, kvCache } = config.pagedAttn;
  return {
    path,
    maxSequences: config.maxSeqs,
    maxBatchTokens: config.maxNumBatchedTokens,
    maxModelLength: model.maxModelLen,
    kvBudget: kvCache,
    kvType: cacheType === "auto" ? "f16" : cacheType,
    threads: config.troupe.threads,
    mmap: config.troupe.mmap,
    gpuLayers: model.device.cpu ? 0 : -1,
    abortFlag: null,
    computeLock: null,
  };
}

export function schedulerLimits(config: Config): SchedulerLimits {
  return {
    maxBatchTokens: config.maxNumBatchedTokens,
    maxPrefillChunkTokens: config.maxPrefillChunkTokens,
    maxDecodeStepsBeforePrefill: config.maxDecodeStepsBeforePrefill,
    prefixCacheEntries: config.prefixCacheN,
    maxQueue: config.troupe.maxQueue,
    queueTimeoutMs: config.troupe.queueTimeoutSecs * 1000,
    decodeSlowdown: config.troupe.decodeSlowdown,
    maxStepMs: config.troupe.maxStepMs,
  };
}
