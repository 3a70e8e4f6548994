// Options of InferenceService, from the settings: downloads missing models, chooses their engines, and sets limits. Used by
// serve and run. This module starts nothing.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { ServedModel, ServiceOptions } from "../../actors/front/inference-service.ts";
import type { TextTaskSettings } from "../../actors/messages.ts";
import type { PrefixStoreOptions } from "../../engines/decoding/prefix-store/prefix-store.ts";
import type { EngineName } from "../../engines/engine.ts";
import { isCheckpoint } from "../../engines/files/hub/choice/checkpoint-choice.ts";
import { nativeHost } from "../../engines/llama/native/native-host.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { ServerError } from "../../runtime/errors.ts";
import { ownCpuQuota } from "../../runtime/host/cores.ts";
import type { EngineReport } from "../../runtime/host/system.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { PlaceKind } from "../../runtime/thread/place.ts";
import type { Config } from "../config/config.ts";
import type { Progress } from "../progress.ts";
import { createAdapterFolder } from "./adapters/adapter-folder.ts";
import { type AdapterSetting, adapterRoot, modelAdapters, takesAdapters } from "./adapters/model-adapters.ts";
import { generationDefaults } from "./generation-defaults.ts";
import { modelEngine, resolveSource, schedulerLimits, specOf } from "./model-specs.ts";
import { withMtp } from "./mtp.ts";
import { prepareModel } from "./quantization/prepare-model.ts";
import { type ConvertibleModel, requantizer } from "./quantization/requantize.ts";
import { type DraftedModel, speculationOptions } from "./speculation.ts";

/** Time in milliseconds for the worker threads and processes to stop after the last generation. */
export const placeStopMs = 5000;

const mailboxLimit = 4096;
/** Number of unread events of a stream at which its generation is paused. */
const streamWindow = 256;
/**
 * CPU cores per text worker. One worker prepares some hundred requests per second, which is more than the engine of a small
 * machine can process.
 */
const coresPerTextWorker = 8;
const maxTextWorkers = 4;
/**
 * Minimum number of cores for two slow text tasks at the same time. With fewer cores only one runs, since each occupies a core.
 */
const coresOfTwoSlow = 4;

/** Service options, and the engine of each model with the reason for its choice. */
export interface FrontSettings extends ServiceOptions {
  readonly engines: readonly EngineReport[];
}

export async function frontOptions(config: Config, log: Logger, progress: Progress): Promise<FrontSettings> {
  const { troupe } = config;
  const root = adapterRoot(config);
  const adapterFolder = takesAdapters(config) ? createAdapterFolder() : "";
  const { models, engines, convertible } = await servedModels({ config, folder: adapterFolder, log, progress });
  const speculation = await speculationOptions(config, firstOf(config, models), log, progress);
  progress.stop();
  return {
    models,
    engines,
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
    restart: { kind: "restart", minBackoffMs: 500, maxBackoffMs: 30_000, resetAfterMs: 5000, maxRestarts: 5 },
    loadTimeoutMs: troupe.loadTimeoutSecs * 1000,
    log,
    requantize: requantizer(convertible, troupe.threads, log),
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

interface ServedModels {
  readonly models: readonly ServedModel[];
  readonly engines: readonly EngineReport[];
  /** Sources of the models by id. */
  readonly convertible: ReadonlyMap<string, ConvertibleModel>;
}

async function servedModels(setting: AdapterSetting): Promise<ServedModels> {
  const { config, log, progress } = setting;
  const { troupe } = config;
  const models: ServedModel[] = [];
  const engines: EngineReport[] = [];
  const convertible = new Map<string, ConvertibleModel>();
  const computeLock = config.models.length > 1 ? createComputeLock() : null;
  const host = nativeHost();
  const mayUseGpu = troupe.engine !== "wasm" && config.models.some(({ device }) => !device.cpu);
  if (host.gpuAdvice !== null && mayUseGpu) log.info(host.gpuAdvice);
  for (const model of config.models) {
    const source = await resolveSource(config, model, log, progress);
    const path = await prepareModel(source, { model, threads: troupe.threads, log, progress });
    const spec = await withMtp(config, model, specOf(config, model, path), log, progress);
    const report = await modelEngine(config, model, spec, host, log);
    const { engine } = report;
    engines.push({ model: model.id, ...report });
    convertible.set(model.id, { model, engine, source });
    const { limits, mixture, ...adapters } = await modelAdapters(setting, model, spec.path);
    const kind = placeKindOf(engine, config.troupe.isolate);
    if (engine === "llama" && kind === "thread" && models.some(isLlamaThread)) throw sharedProcess(model.id);
    const abortFlag = kind === "thread" ? new SharedArrayBuffer(8) : null;
    models.push({
      id: model.id,
      engine,
      level: model.quantization.isq === null ? null : parseLevel(model.quantization.isq, "isq").name,
      spec: { ...spec, abortFlag, computeLock, adapters: limits, mixture },
      chatTemplate: model.chatTemplate,
      jinjaExplicit: model.jinjaExplicit,
      kind,
      // A checkpoint's own sampling is in the converted file, that of a GGUF file may be in a file beside it.
      defaults: await generationDefaults(model, isCheckpoint(source) ? spec.path : source, log),
      ...adapters,
    });
  }
  return { models, engines, convertible };
}

/** Returns the first model, which is the only one if a draft model is set. */
function firstOf(config: Config, [served]: readonly ServedModel[]): DraftedModel {
  const [model] = config.models;
  assert(model !== undefined && served !== undefined, "there is at least one model");
  return { model, engine: served.engine, spec: served.spec };
}

/**
 * Returns whether an engine runs in a process or a thread. A failed assertion in native code ends the entire process, but a
 * failure in WebAssembly is only an exception.
 */
function placeKindOf(engine: EngineName, isolate: Config["troupe"]["isolate"]): PlaceKind {
  if (isolate === "auto") return engine === "llama" ? "process" : "thread";
  return isolate === "true" ? "process" : "thread";
}

function isLlamaThread({ engine, kind }: ServedModel): boolean {
  return engine === "llama" && kind === "thread";
}

/**
 * Error for two llama models in one process. llama.cpp has one log callback per process. While one model loads, log lines of
 * other models would call back into the wrong thread.
 */
function sharedProcess(second: string): ServerError {
  const message =
    "isolate = false expects one model on the llama engine: llama.cpp has one log callback per process, which several " +
    `models in one process cannot share; got a second one, "${second}": remove isolate, so that each model runs in its own ` +
    "process, or use the wasm engine";
  return new ServerError("config_invalid", message, { param: "isolate" });
}

/** Returns the path of a lock file in a temporary folder that is removed at exit. */
function createComputeLock(): string {
  const folder = mkdtempSync(join(tmpdir(), "troupe-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "compute.lock");
}
