// Speech models: recognises configured speech models, and builds the settings with which they are served. A speech model is a
// local path or espeak-ng; nothing is downloaded.
import { existsSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import type { ServedModel } from "../../../actors/front/inference-service.ts";
import type { SpeechLimits } from "../../../actors/messages.ts";
import { defaultsOf } from "../../../engines/sampling-defaults.ts";
import { espeakSource, hasSpeechModel, identifySpeech } from "../../../engines/speech/open-speech.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import { specOf } from "./model-specs.ts";

/** Returns whether a configured model is a speech model: by its kind or, for the kind `auto`, by its files. */
export function isSpeechModel({ kind, modelId }: Pick<ModelConfig, "kind" | "modelId">): boolean {
  if (kind !== "auto") return kind === "speech";
  if (modelId === espeakSource) return true;
  const state = statSync(modelId, { throwIfNoEntry: false });
  if (state?.isFile() === true) return modelId.endsWith(".onnx") && existsSync(`${modelId}.json`);
  return state?.isDirectory() === true && hasSpeechModel(modelId);
}

/** Returns the settings of a speech model. Throws `model_file_invalid` if the path is not a speech model. */
export function speechModel(config: Config, model: ModelConfig): ServedModel {
  const path = model.modelId === espeakSource ? espeakSource : resolve(model.modelId);
  const threads = Math.min(config.speech.threads, availableParallelism());
  return {
    id: model.id,
    engine: "wasm",
    speech: { spec: { ...identifySpeech(path), path, threads }, limits: speechLimits(config) },
    spec: specOf(config, model, path),
    chatTemplate: null,
    jinjaExplicit: null,
    kind: "process",
    defaults: defaultsOf({}, null),
    adapters: null,
    ownAdapter: null,
  };
}

export function speechLimits({ speech, troupe }: Pick<Config, "speech" | "troupe">): SpeechLimits {
  return {
    maxInputChars: speech.maxInputChars,
    maxSpeechSeconds: speech.maxSpeechSecs,
    maxAudioBytes: speech.maxAudioBytes,
    maxAudioSeconds: speech.maxAudioSecs,
    maxQueue: troupe.maxQueue,
  };
}
