// Owns the adapters of all models as the routes see them: finds the model's, or says why there are none. Made by the front,
// which keeps the adapters of each model itself.
import { ServerError } from "../../runtime/errors.ts";
import type {
  AdapterListing,
  LoadAdapterRequest,
  LoadedAdapter,
  LoraAdapters,
  UnloadAdapterRequest,
} from "../api/lora-adapters.ts";
import type { ModelAdapters } from "./model-adapters.ts";

export class LoraRegistry implements LoraAdapters {
  readonly #models: ReadonlyMap<string, ModelAdapters | null>;

  /** All models by id; null is one that takes no adapters. */
  constructor(models: ReadonlyMap<string, ModelAdapters | null>) {
    this.#models = models;
  }

  load(request: LoadAdapterRequest): Promise<LoadedAdapter> {
    const loaded = this.#load(request);
    // It goes on when nobody waits for it any more; then its failure is in the log alone.
    loaded.catch(() => {});
    return loaded;
  }

  async unload(request: UnloadAdapterRequest): Promise<LoadedAdapter> {
    return await this.#of(request.model).unload(request);
  }

  list(model: string): AdapterListing {
    return this.#of(model).list();
  }

  async #load(request: LoadAdapterRequest): Promise<LoadedAdapter> {
    return await this.#of(request.model).load(request);
  }

  #of(model: string): ModelAdapters {
    const adapters = this.#models.get(model);
    if (adapters) return adapters;
    if (adapters === null) {
      throw new ServerError(
        "lora_runtime_unavailable",
        `model "${model}" takes no adapters; enable_lora lets one that has none of its own (legacy_lora, xlora)`,
        { param: "model" },
      );
    }
    throw new ServerError(
      "model_not_found",
      `model "${model}" is not available; available models: ${[...this.#models.keys()].join(", ")}`,
      { param: "model" },
    );
  }
}
