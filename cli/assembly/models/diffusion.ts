// Diffusion models: recognises configured models that generate images, and builds the settings with which they are served.
import { resolve } from "node:path";
import type { ServedModel } from "../../../actors/front/inference-service.ts";
import { isDiffusionFolder } from "../../../engines/diffusion/model-folder.ts";
import { defaultsOf } from "../../../engines/sampling-defaults.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import { specOf } from "./model-specs.ts";

/** Returns whether a model generates images: by its kind or, for the kind `auto`, by the files in its folder. */
export async function isDiffusionModel({ kind, modelId }: ModelConfig): Promise<boolean> {
  return kind === "diffusion" || (kind === "auto" && (await isDiffusionFolder(resolve(modelId))));
}

/** Returns the settings of a diffusion model. Does not read the model's folder; this happens when the model is loaded. */
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
