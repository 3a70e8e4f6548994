// ModelManager: creates all models from the options, starts and stops them together, and finds models by name.
import type { ActorSystem } from "../../runtime/actor/system.ts";
import { realClock } from "../../runtime/clock.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelEntry, ResolvedModel } from "../api/inference.ts";
import type { ServiceOptions } from "../front/service-options.ts";
import { AdapterLoadLock } from "../lora-registry/adapter-load-lock.ts";
import { LoraRegistry } from "../lora-registry/lora-registry.ts";
import { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelPlaceInit, ModelPlaceReady, ModelReport } from "../messages.ts";
import { modelModule } from "../placement.ts";
import { ManagedModel, type ManagedModelOptions } from "./managed-model.ts";
import { resolveName, unknownModel } from "./model-names.ts";
import type { ModelUsers } from "./model-process.ts";
import { ModelSlots } from "./model-slots.ts";
import type { ServedModel } from "./served-model.ts";

export class ModelManager {
  /** The adapters of all models. */
  readonly lora: LoraRegistry;
  readonly #options: ServiceOptions;
  /** Models by id, in configured order. */
  readonly #models = new Map<string, ManagedModel>();
  /** Models that start() loads: the default model, and further models up to the number of slots. */
  readonly #atStart: ReadonlySet<string>;
  #isStarting = true;
  #isStopped = false;

  constructor(options: ServiceOptions, system: ActorSystem, users: ModelUsers) {
    const { models, maxLoadedModels, defaultModelId, limits, clock = realClock } = options;
    const others = models.map(({ id }) => id).filter((id) => id !== defaultModelId);
    const slots = new ModelSlots(maxLoadedModels);
    const gate = new AdapterLoadLock();
    this.#options = options;
    this.#atStart = new Set([defaultModelId, ...others].slice(0, maxLoadedModels ?? models.length));
    for (const served of models) {
      const adapters = this.#adaptersOf(served, gate);
      const spawn: ManagedModelOptions["spawn"] = (now, signal) => this.#spawn(now, signal);
      const [loadsAtStart, maxWaiting] = [this.#atStart.has(served.id), limits.maxQueue];
      const own = { served, adapters, spawn, loadsAtStart, maxWaiting };
      this.#models.set(served.id, new ManagedModel({ ...options, ...own, system, users, slots, clock }));
    }
    this.lora = new LoraRegistry(new Map(this.all.map(({ id, adapters }) => [id, adapters])));
  }

  get all(): readonly ManagedModel[] {
    return [...this.#models.values()];
  }

  /**
   * Loads adapters and models when the server starts. Rejects with the first failure. Never settles if stop() is called first.
   */
  async start(): Promise<void> {
    try {
      await Promise.all(this.all.map(({ adapters }) => adapters?.preload()));
      await Promise.all(this.all.filter(({ id }) => this.#atStart.has(id)).map((model) => model.start()));
    } catch (error) {
      // stop() aborts the preparation of adapters; the resulting error does not mean that the start has failed.
      if (!this.#isStopped) throw error;
    }
    if (this.#isStopped) await new Promise(() => {});
    for (const { adapters } of this.all) adapters?.serverStarted();
    this.#isStarting = false;
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.all.map((model) => model.stop(deadlineMs)));
    await Promise.all(this.all.map(({ adapters }) => adapters?.close()));
  }

  entries(): readonly ModelEntry[] {
    return this.all.map(({ id, status, createdAt, served, model, adapters, loadFraction, requantization }) => {
      const { defaults, spec } = served;
      return {
        id,
        status,
        createdAt,
        path: spec.path,
        defaults,
        loadProgress: status === "reloading" ? loadFraction : null,
        requantization,
        capabilities: model.capabilities,
        adapters: adapters?.entries() ?? [],
      };
    });
  }

  resolve(requested: string | undefined): ResolvedModel {
    const named = resolveName(requested, this.entries(), this.#options.defaultModelId);
    return { ...named, defaults: this.get(named.id).served.defaults };
  }

  /** Returns the model with an id. Throws model_not_found. */
  get(id: string): ManagedModel {
    const model = this.#models.get(id);
    if (model === undefined) throw unknownModel(id, this.entries());
    return model;
  }

  /** Returns the model with an id; "default" means the default model. Throws model_not_found. */
  named(name: string): ManagedModel {
    return this.get(name === "default" ? this.#options.defaultModelId : name);
  }

  #adaptersOf({ id, spec, adapters }: ServedModel, gate: AdapterLoadLock): ModelAdapters | null {
    if (adapters === null) return null;
    const { adapterFolder: folder, adapterRoot: root, log } = this.#options;
    const whileLoaded: ManagedModel["whileLoaded"] = (task) => this.get(id).whileLoaded(task);
    return new ModelAdapters({
      modelId: id,
      modelPath: spec.path,
      settings: adapters,
      folder,
      root,
      gate,
      log,
      whileLoaded,
    });
  }

  #spawn({ id, engine, spec, kind }: ServedModel, signal: AbortSignal): Promise<Place<ModelPlaceReady>> {
    const { limits, frameIntervalMs, speculation, prefixStore, generationPlace: agents } = this.#options;
    return spawnPlace<ModelPlaceInit, ModelPlaceReady>({
      name: `model:${id}`,
      signal,
      module: this.#options.modelModule ?? modelModule,
      init: { engine, spec, limits, frameIntervalMs, speculation, prefixStore, mailboxLimit: agents.mailboxLimit },
      kind,
      startTimeoutMs: this.#options.loadTimeoutMs,
      onProgress: (report) => this.#reported(id, report as ModelReport),
    });
  }

  #reported(id: string, report: ModelReport): void {
    if (typeof report !== "number") {
      this.#options.log.warn({ model: id }, report.notice);
      return;
    }
    this.get(id).loadFraction = report;
    if (this.#isStarting) this.#options.onLoadProgress(id, report);
  }
}
