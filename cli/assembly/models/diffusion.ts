// Diffusion models: recognises the models of the settings that make images, and builds their settings.
import { resolve } from "node:path";
import type { ServedModel } from "../../../actors/front/inference-service.ts";
import { isDiffusionFolder } from "../../../engines/diffusion/model-folder.ts";
import { defaultsOf } from "../../../engines/sampling-defaults.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import { specOf } from "./model-specs.ts";

/** Returns whether a model makes images: its kind says so, or its folder is that of a diffusion model. */
export async function isDiffusionModel({ kind, modelId }: ModelConfig): Promise<boolean> {
  return kind === "diffusion" || (kind === "auto" && (await isDiffusionFolder(resolve(modelId))));
}

/** Returns the settings of a diffusion model. Its folder is read when it is loaded. */
export function diffusionModel(config: Config, model: ModelConfig): ServedModel {
  const { threads, maxPixels, maxSteps, maxQueue, timeoutSecs } = config.diffusion;
  const path = resolve(model.modelId);
  return {
    id: model.id,
    engine: "wasm",
    spec: specOf(config, model, path),
    chatTemplate: null,
    jinjaExplicit: null,
    kind: "process",
    defaults: defaultsOf({}, null),
    adapters: null,
    ownAdapter: null,
    diffusion: {
      spec: {
        path,
        threads: computeThreads(threads),
        limits: { maxPixels, maxSteps },
      },
      limits: { timeoutMs: timeoutSecs * 1000, maxQueue },
    },
  };
}
