// LoraRegistry: implements LoraAdapters for all models. Forwards each call to the adapters of the named model.
import { ServerError } from "../../runtime/errors.ts";
import type {
  AdapterFailure,
  AdapterListing,
  LoadAdapterRequest,
  LoadedAdapter,
  LoraAdapters,
  UnloadAdapterRequest,
} from "../api/lora-adapters.ts";
import type { ModelAdapters } from "./model-adapters.ts";

/** `adapters`: null = the model does not support adapters. */
type AdaptableModels = ReadonlyMap<string, { readonly adapters: ModelAdapters | null }>;

export class LoraRegistry implements LoraAdapters {
  readonly #models: AdaptableModels;

  /** `models`: the models by id. */
  constructor(models: AdaptableModels) {
    this.#models = models;
  }

  load(request: LoadAdapterRequest): Promise<LoadedAdapter> {
    const loaded = this.#load(request);
    // The load continues if the client disconnects. A failure is then only logged.
    loaded.catch(() => {});
    return loaded;
  }

  async unload(request: UnloadAdapterRequest): Promise<LoadedAdapter> {
    return await this.#of(request.model).unload(request);
  }

  list(model: string): AdapterListing {
    return this.#of(model).list();
  }

  /** Returns an empty list: without shared state, a failed load is reported only to the client that requested it. */
  async failures(): Promise<readonly AdapterFailure[]> {
    return [];
  }

  async #load(request: LoadAdapterRequest): Promise<LoadedAdapter> {
    return await this.#of(request.model).load(request);
  }

  #of(model: string): ModelAdapters {
    const adapters = this.#models.get(model)?.adapters;
    if (adapters) return adapters;
    if (adapters === null) {
      throw new ServerError(
        "lora_runtime_unavailable",
        `model "${model}" takes no adapters; enable_lora allows them, unless the model has fixed ones (legacy_lora, xlora)`,
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
