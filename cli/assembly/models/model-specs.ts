// Model specs: downloads each model, chooses its engine, and builds its ModelSpec from the settings.
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { SchedulerLimits } from "../../../engines/decoding/scheduler/limits.ts";
import type { EngineName, KvBudget, ModelSpec } from "../../../engines/engine.ts";
import { findTrial } from "../../../engines/engine-choice/trial.ts";
import { multiVectorKey } from "../../../engines/files/embedding-rules.ts";
import { readHead } from "../../../engines/files/gguf/reader.ts";
import { shardPaths } from "../../../engines/files/gguf/shards.ts";
import type { FetchOptions } from "../../../engines/files/hub/download/fetch-options.ts";
import { defaultCacheDirectory } from "../../../engines/files/hub/model-cache.ts";
import { resolveModel } from "../../../engines/files/hub/resolve-model.ts";
import { encodersOf, readAudioProjectorFile } from "../../../engines/files/projector/audio-projector.ts";
import { readProjectorFile } from "../../../engines/files/projector/image-projector.ts";
import { maxNativeSequences } from "../../../engines/llama/context-sizes.ts";
import type { NativeHost } from "../../../engines/llama/native/native-host.ts";
import { wasmRefusal } from "../../../engines/wasm/load/fit.ts";
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import { keys } from "../../config/keys.ts";
import type { Progress } from "../../progress.ts";
import { version } from "../../version.ts";
import { prepareModel } from "../quantization/prepare-model.ts";
import { gibibytes, isAuto, wantedFiles, weightRoom } from "../quantization/quant.ts";
import { chooseEngine, type EngineChoice } from "./choose-engine.ts";

/** Minimum number of additional logits rows per step, used by prompts with logprobs. */
const leastExtraLogitsRows = 16;

/**
 * Returns the path of a model: of its GGUF file, of the config.json of its checkpoint, or of its first UQFF file. Downloads the
 * model if it is not on this machine.
 */
export async function resolveSource(
  config: Config,
  { id, modelId, device, format, quantization: { quant, fromUqff } }: ModelConfig,
  log: Logger,
  progress: Progress,
  fetching: Pick<FetchOptions, "environment"> = {},
): Promise<string> {
  const room = isAuto(quant) ? weightRoom() : null;
  const { path } = await resolveModel(modelId, {
    ...fetching,
    roomBytes: room?.bytes,
    tokenSource: config.tokenSource,
    hfCache: device.hfCache,
    quantizedFile: format.quantizedFile,
    format: format.format === "plain" ? "plain" : undefined,
    quantisations: wantedFiles(quant),
    fromUqff: [fromUqff ?? []].flat().flatMap((names) => names.split(";")),
    ...(progress.signal && { signal: progress.signal }),
    onNotice: (message) => log.info({ model: id }, message),
    onProgress: ({ phase, doneBytes, totalBytes }) => progress.update(`${phase} ${id}`, doneBytes, totalBytes),
  });
  if (room !== null && path.endsWith(".gguf")) {
    const bytes = (await Promise.all(shardPaths(path).map((shard) => stat(shard)))).reduce(
      (sum, { size }) => sum + size,
      0,
    );
    log.info({ model: id, path }, `quant auto finds a file of ${gibibytes(bytes)}; weights may take ${room.reason}`);
  }
  return path;
}

/**
 * Returns the settings of an auxiliary model, such as a draft model. They are the settings of the main model, except those
 * about the main model's own weights and files.
 */
export function otherModel(model: ModelConfig, modelId: string): ModelConfig {
  const { device, format, quantization } = model;
  return {
    ...model,
    ...{ modelId, dtype: "auto", hfOverrides: null, tokenizer: null },
    ...{ matformerConfigPath: null, matformerSliceName: null, arch: null },
    device: { ...device, topology: null, deviceLayers: null },
    format: { ...format, format: null, quantizedFile: null, tokModelId: null, gqa: 1 },
    embedding: { pooling: "auto", prompts: null },
    quantization: {
      ...quantization,
      quant: null,
      isq: null,
      fromUqff: null,
      isqOrganization: "default",
      imatrix: null,
      calibrationFile: null,
    },
  };
}

/** Returns the path of a model's GGUF file. Converts the model if it is not a GGUF file, or if the settings quantize it. */
export async function fetchModel(config: Config, model: ModelConfig, log: Logger, progress: Progress): Promise<string> {
  const path = await resolveSource(config, model, log, progress);
  return await prepareModel(path, { model, threads: config.troupe.threads, log, progress });
}

/** Returns the spec of a model. Downloads its file if it is not on this machine. */
export async function modelSpec(
  config: Config,
  model: ModelConfig,
  log: Logger,
  progress: Progress,
): Promise<ModelSpec> {
  return specOf(config, model, await fetchModel(config, model, log, progress));
}

/** Returns the spec of a model whose GGUF file is at `path`. */
export function specOf(config: Config, model: ModelConfig, path: string): ModelSpec {
  const { blockSize, cacheType } = config.pagedAttn;
  return {
    path,
    maxSequences: config.maxSeqs,
    maxBatchTokens: config.maxNumBatchedTokens,
    maxModelLength: model.maxModelLen,
    kvBudget: kvBudget(config),
    kvType: cacheType,
    blockTokens: blockSize,
    pagedKv: pagedKv(config),
    extraLogitsRows: Math.max(leastExtraLogitsRows, config.troupe.maxDraftTokens),
    threads: config.troupe.threads,
    mmap: config.troupe.mmap,
    gpuLayers: model.device.cpu ? 0 : -1,
    pooling: model.embedding.pooling === "auto" ? null : model.embedding.pooling,
    kind: model.kind === "text" || model.kind === "multimodal" || model.kind === "embedding" ? model.kind : null,
    images: null,
    abortFlag: null,
    computeLock: null,
  };
}

/**
 * Adds image or audio input to the spec of a model. `projector`: path of the projector file; null if the model accepts neither
 * images nor audio.
 */
export async function withProjector(
  config: Config,
  { multimodal }: ModelConfig,
  spec: ModelSpec,
  projector: string | null,
): Promise<ModelSpec> {
  if (projector === null) return spec;
  const { maxEdge, maxNumImages, maxNumFrames, maxNumAudio } = multimodal;
  const { encoderCache: cacheBytes, maxMediaBytesInFlight } = config.troupe;
  const file = { path: projector, cacheBytes, maxMediaBytesInFlight };
  const encoders = await usedEncoders(projector, multimodal);
  if (spec.mtp && (encoders.images || encoders.audio)) {
    const message =
      "images and audio (mmproj, kind multimodal) cannot be combined with multi-token prediction (mtp_model, mtp_n_predict): " +
      "remove one of them";
    throw new ServerError("config_invalid", message, { param: "mmproj" });
  }
  const images = encoders.images && {
    ...(await readProjectorFile(projector)).rules,
    ...{ ...file, maxEdge, maxImages: maxNumImages, maxFrames: maxNumFrames },
  };
  const audio = encoders.audio && {
    ...(await readAudioProjectorFile(projector)).rules,
    ...{ ...file, maxAudio: maxNumAudio, maxSeconds: config.speech.maxAudioSecs },
  };
  return { ...spec, ...(images && { images }), ...(audio && { audio }) };
}

/** Returns which encoders of a projector file are loaded: those that requests may use. */
export async function usedEncoders(
  projector: string,
  { maxNumImages, maxNumAudio }: Pick<ModelConfig["multimodal"], "maxNumImages" | "maxNumAudio">,
): Promise<{ readonly images: boolean; readonly audio: boolean }> {
  const { images, audio } = await encodersOf(projector);
  return { images: images && maxNumImages > 0, audio: audio && maxNumAudio > 0 };
}

function kvBudget({ pagedAttn: { kvCache, gpuMemoryUtilization } }: Config): KvBudget | null {
  return gpuMemoryUtilization === null ? kvCache : { fraction: gpuMemoryUtilization };
}

/**
 * Returns whether the KV cache is paged; null if the engine decides. If a KV size is configured, the cache is paged, because it
 * would otherwise be split into equal shares, which would limit the length of each sequence.
 */
function pagedKv(config: Config): boolean | null {
  const { mode } = config.pagedAttn;
  if (mode !== "auto") return mode === "on";
  return isPoolBySize(config) ? true : null;
}

/** Returns whether the KV cache is paged only because its size is configured. */
function isPoolBySize(config: Config): boolean {
  return config.pagedAttn.mode === "auto" && kvBudget(config) !== null;
}

/** Returns why the llama engine does not support these settings; null if it supports them. */
function llamaRefusal({ troupe, models }: Config, { maxSequences }: ModelSpec): string | null {
  if (maxSequences > maxNativeSequences) return `max_seqs ${maxSequences} is more than its ${maxNativeSequences}`;
  return troupe.isolate === "false" && models.length > 1 ? "with isolate = false it runs one model" : null;
}

/** Returns the setting or feature of a model that only the wasm engine supports; null if there is none. */
async function wasmOnly({ xlora }: ModelConfig["adapter"], { path, pooling }: ModelSpec): Promise<string | null> {
  if (xlora !== null) return "xlora";
  // Ignore errors: if the file cannot be read, the engine reports this when it loads the file.
  const head = await readHead(path, (key) => key === multiVectorKey).catch(() => null);
  return pooling === "tokens" || head?.pairs.has(multiVectorKey) ? "a vector for each token (pooling tokens)" : null;
}

/** Returns the configured engine of models on this machine. Throws config_invalid if it is `remote`. */
export function localEngine({ command, troupe: { engine } }: Config): "auto" | EngineName {
  if (engine !== "remote") return engine;
  const message = `engine expects auto, llama or wasm for ${command}, which needs the model's weights here; got remote`;
  throw new ServerError("config_invalid", message, { param: "engine" });
}

/** Chooses the engine of a model on this machine, and logs the reason. */
export async function modelEngine(
  config: Config,
  { id, device, adapter }: ModelConfig,
  spec: ModelSpec,
  host: NativeHost,
  log: Logger,
): Promise<EngineChoice["report"]> {
  const { path, kvType, blockTokens } = spec;
  const { report, isNew } = await chooseEngine({
    configured: localEngine(config),
    path,
    wasmOnly: await wasmOnly(adapter, spec),
    llamaRefusal: llamaRefusal(config, spec),
    nodeVersion: process.versions.node,
    gpu: async () => (device.cpu ? null : host.gpu()),
    nativeProblem: () => host.problem(),
    wasmRefusal: async () => {
      if (kvType === "q4_0") return "it has no cache_type q4_0";
      return spec.mtp ? "it has no multi-token prediction (mtp_model, mtp_n_predict)" : wasmRefusal(spec);
    },
    trial: () => findTrial(spec, { path: trialRecord(), version }).catch((error) => toErrorRecord(error).message),
  });
  const { engine, reason, advice } = report;
  log.info({ model: id, engine, reason }, "engine chosen");
  if (advice !== null && isNew) log.info({ model: id }, advice);
  if (config.pagedAttn.gpuMemoryUtilization !== null && !(await usesGpu(engine, device.cpu, host))) {
    log.info({ model: id }, "no GPU is used: gpu_memory_utilization is a fraction of the free main memory");
  }
  if (engine === "llama" && isPoolBySize(config) && !(await usesGpu(engine, device.cpu, host))) {
    const setting = config.pagedAttn.gpuMemoryUtilization === null ? "kv_cache" : "gpu_memory_utilization";
    const message =
      `${setting} implies a paged KV cache, which makes the llama engine 1.6 to 3 times slower on a CPU unless sequences ` +
      "share a prefix; set max_model_len instead, or paged_attn mode to off";
    log.warn({ model: id }, message);
  }
  if (engine === "llama" && spec.pagedKv !== true && blockTokens !== keys.pagedAttn.blockSize.default) {
    const message =
      "block_size has no effect: the llama engine uses blocks only with a paged KV cache (paged_attn mode on, or a GPU)";
    log.warn({ model: id, blockSize: blockTokens }, message);
  }
  return report;
}

/** Returns the path of the file with trial results; null if the user has no home folder. */
function trialRecord(): string | null {
  try {
    return join(defaultCacheDirectory(process.env), "engine-trials.json");
  } catch (error) {
    if (error instanceof ServerError) return null;
    throw error;
  }
}

async function usesGpu(engine: EngineName, cpu: boolean, host: NativeHost): Promise<boolean> {
  return engine === "llama" && !cpu && (await host.gpu()) !== null;
}

/**
 * Minimum default for the number of finished sequences in the prefix cache. With more slots than this, the default is the
 * number of slots.
 */
const minPrefixCacheEntries = 16;

export function schedulerLimits(config: Config): SchedulerLimits {
  return {
    maxBatchTokens: config.maxNumBatchedTokens,
    maxPrefillChunkTokens: config.maxPrefillChunkTokens,
    maxDecodeStepsBeforePrefill: config.maxDecodeStepsBeforePrefill,
    prefixCacheEntries: config.prefixCacheN ?? Math.max(minPrefixCacheEntries, config.maxSeqs),
    swapBytes: config.troupe.kvSwap,
    maxQueue: config.troupe.maxQueue,
    queueTimeoutMs: config.troupe.queueTimeoutSecs * 1000,
    slotShareMs: config.troupe.slotShareSecs * 1000,
    decodeSlowdown: config.troupe.decodeSlowdown,
    maxStepMs: config.troupe.maxStepMs,
  };
}
