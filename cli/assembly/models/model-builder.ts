// ModelBuilder: prepares models for serving, from their settings. It downloads and converts missing files, and chooses engines.
// It does not load the models.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { ServedModel } from "../../../actors/front/inference-service.ts";
import type { EngineName } from "../../../engines/engine.ts";
import type { FetchOptions } from "../../../engines/files/hub/download/fetch-options.ts";
import { formatOf } from "../../../engines/files/model-format.ts";
import { checkImageLibrary } from "../../../engines/image-input/image-decoder.ts";
import { type NativeHost, nativeHost } from "../../../engines/llama/native/native-host.ts";
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import type { RemoteSettings } from "../../../engines/remote/upstream.ts";
import { defaultsOf } from "../../../engines/sampling-defaults.ts";
import { checkAudioDecoder } from "../../../engines/speech/audio/decoder-package.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { EngineReport } from "../../../runtime/host/system.ts";
import type { PlaceKind } from "../../../runtime/thread/place.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { type AdapterSetting, modelAdapters } from "../adapters/model-adapters.ts";
import { prepareModel } from "../quantization/prepare-model.ts";
import { prepareProjector } from "../quantization/prepare-projector.ts";
import type { ConvertibleModel } from "../quantization/requantize.ts";
import { diffusionModel, isDiffusionModel } from "./diffusion.ts";
import { generationDefaults } from "./generation-defaults.ts";
import { withDeviceLayers } from "./gpu-layers.ts";
import { modelEngine, resolveSource, specOf, usedEncoders, withProjector } from "./model-specs.ts";
import { withMtp } from "./mtp.ts";
import { remoteSettings, vocabularyFile } from "./remote.ts";
import { isSpeechModel, speechModel } from "./speech.ts";

/** Options for a model that is fetched after the start of the server. By default, the options of the start apply. */
export interface BuildOptions extends Pick<FetchOptions, "environment"> {
  readonly progress?: Progress;
}

export class ModelBuilder {
  /** Engines of the models, with the reason for each choice. */
  readonly engines: EngineReport[] = [];
  /** Models that can be requantized, with their source files, by model id. */
  readonly convertible = new Map<string, ConvertibleModel>();
  /** Paths of the files that each model uses, by model id. */
  readonly files = new Map<string, readonly string[]>();
  readonly #setting: AdapterSetting;
  readonly #host: NativeHost = nativeHost();
  readonly #computeLock: string | null;
  readonly #llamaThreads = new Set<string>();

  constructor(setting: AdapterSetting) {
    const { config, log } = setting;
    const { models, troupe } = config;
    this.#setting = setting;
    const computing = models.filter((model) => !isSpeechModel(model) && model.kind !== "diffusion");
    this.#computeLock = computing.length > 1 || troupe.maxModelDownloads > 0 ? createComputeLock() : null;
    const mayUseGpu = troupe.engine !== "wasm" && models.some(({ device }) => !device.cpu);
    if (this.#host.gpuAdvice !== null && mayUseGpu) log.info(this.#host.gpuAdvice);
  }

  /** Prepares a model. Throws a ServerError with a message that names the model or the setting. */
  async build(
    model: ModelConfig,
    { progress = this.#setting.progress, ...fetching }: BuildOptions = {},
  ): Promise<ServedModel> {
    const { config, log } = this.#setting;
    const { threads, isolate } = config.troupe;
    const remote = remoteSettings(config, model);
    if (remote !== null) return await this.#remote(model, remote);
    if (await isDiffusionModel(model)) return diffusionModel(config, model);
    if (isSpeechModel(model)) return speechModel(config, model);
    await checkDecoders(model);
    const source = await resolveSource(config, model, log, progress, fetching);
    const path = await prepareModel(source, { model, threads, log, progress });
    const projector = await prepareProjector(source, { model, threads, log, progress });
    const heads = await withMtp(config, model, specOf(config, model, path), log, progress);
    const whole = await withProjector(config, model, heads, projector);
    const report = await modelEngine(config, model, whole, this.#host, log);
    const { engine } = report;
    const spec = await withDeviceLayers(model, whole, engine, this.#host, log);
    const { limits, mixture, ...adapters } = await modelAdapters({ ...this.#setting, progress }, model, spec.path);
    const kind = placeKindOf(engine, isolate);
    // The sampling defaults of a GGUF file may be in a file next to it. For other formats, they are in the converted file.
    const defaults = await generationDefaults(model, (await formatOf(source)) === "gguf" ? source : spec.path, log);
    if (engine === "llama" && kind === "thread") {
      if (this.#llamaThreads.size > 0) throw sharedProcess(model.id);
      this.#llamaThreads.add(model.id);
    }
    this.engines.push({ model: model.id, ...report });
    this.convertible.set(model.id, { model, engine, source });
    const used = [source, spec.path, spec.mtp?.path, (spec.images ?? spec.audio)?.path];
    this.files.set(
      model.id,
      used.flatMap((file) => file ?? []),
    );
    const abortFlag = kind === "thread" ? new SharedArrayBuffer(8) : null;
    return {
      id: model.id,
      engine,
      level: model.quantization.isq === null ? null : parseLevel(model.quantization.isq, "isq").name,
      spec: { ...spec, abortFlag, computeLock: this.#computeLock, adapters: limits, mixture },
      chatTemplate: model.chatTemplate,
      jinjaExplicit: model.jinjaExplicit,
      ...promptsOf(model),
      kind,
      defaults,
      ...adapters,
    };
  }

  /** Prepares a model that runs on other servers. Settings of engines on this machine do not apply to it. */
  async #remote(model: ModelConfig, remote: RemoteSettings): Promise<ServedModel> {
    const { config, log, progress } = this.#setting;
    const reason = `url is ${remote.urls.join(", ")}`;
    this.engines.push({ model: model.id, engine: "remote", reason, advice: null, figures: null });
    if (model.remote.upstreamMode === "text") return this.#textRemote(model, remote);
    const path = await vocabularyFile(config, model, log, progress);
    return {
      ...{ id: model.id, engine: "remote", remote, level: null, kind: "thread" },
      spec: specOf(config, model, path),
      chatTemplate: model.chatTemplate,
      jinjaExplicit: model.jinjaExplicit,
      ...promptsOf(model),
      defaults: await generationDefaults(model, path, log),
      ...{ adapters: null, ownAdapter: null },
    };
  }

  /**
   * Prepares a model on servers that return only text, not tokens. This server has no tokenizer for it, and the other servers
   * apply their own sampling defaults.
   */
  #textRemote(model: ModelConfig, textRemote: RemoteSettings): ServedModel {
    if (model.kind === "embedding") {
      const message = 'upstream_mode = "text" serves chats only; embeddings need upstream_mode = "tokens"';
      throw new ServerError("config_invalid", message, { param: "upstream_mode" });
    }
    return {
      ...{ id: model.id, engine: "remote", textRemote, level: null, kind: "thread" },
      spec: specOf(this.#setting.config, model, model.modelId),
      ...{ chatTemplate: null, jinjaExplicit: null, adapters: null, ownAdapter: null },
      defaults: defaultsOf({}, model.defaultMaxTokens),
    };
  }

  /** Removes the records of a model that is no longer served. */
  forget(id: string): void {
    this.convertible.delete(id);
    this.files.delete(id);
    this.#llamaThreads.delete(id);
    const index = this.engines.findIndex(({ model }) => model === id);
    if (index !== -1) this.engines.splice(index, 1);
  }
}

/** Throws `config_invalid`, before anything is downloaded or converted, if the images or the audio of a model cannot be decoded here. */
async function checkDecoders({
  kind,
  multimodal,
  format: { mmproj },
}: Pick<ModelConfig, "kind" | "multimodal" | "format">): Promise<void> {
  if (mmproj === null) {
    if (kind === "multimodal" && multimodal.maxNumImages > 0) checkImageLibrary("kind");
    return;
  }
  const { images, audio } = await usedEncoders(resolve(mmproj), multimodal);
  if (images) checkImageLibrary("mmproj");
  if (audio) checkAudioDecoder();
}

function promptsOf({ embedding: { prompts } }: ModelConfig): Pick<ServedModel, "prompts"> {
  return prompts === null ? {} : { prompts };
}

/**
 * Returns whether an engine runs in a process or a thread. A failed assertion in native code ends the entire process, but a
 * failure in WebAssembly is only an exception.
 */
function placeKindOf(engine: EngineName, isolate: Config["troupe"]["isolate"]): PlaceKind {
  if (isolate === "auto") return engine === "llama" ? "process" : "thread";
  return isolate === "true" ? "process" : "thread";
}

/**
 * Returns the error for two llama models in one process. llama.cpp has one log callback per process. While one model loads, log
 * lines of other models would call back into the wrong thread.
 */
function sharedProcess(second: string): ServerError {
  const message =
    "isolate = false expects one model on the llama engine: llama.cpp has one log callback per process, which several " +
    `models in one process cannot share; got a second one, "${second}": remove isolate, so that each model runs in its own ` +
    "process, or use the wasm engine";
  return new ServerError("config_invalid", message, { param: "isolate" });
}

/** Returns the path of the lock file with which models on the same cores take turns. Its temporary folder is removed at exit. */
function createComputeLock(): string {
  const folder = mkdtempSync(join(tmpdir(), "troupe-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "compute.lock");
}
