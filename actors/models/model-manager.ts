// Owns the lives of all models: makes them from the settings, starts and ends them together, and finds one by its name.
// Used by front.ts, which sends requests to them.
import type { ActorSystem } from "../../runtime/actor/system.ts";
import { realClock } from "../../runtime/clock.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelEntry, ResolvedModel } from "../api/inference.ts";
import type { ModelManagement, ModelOutcome } from "../api/model-management.ts";
import type { ServiceOptions } from "../front/service-options.ts";
import { AdapterLoadLock } from "../lora-registry/adapter-load-lock.ts";
import { LoraRegistry } from "../lora-registry/lora-registry.ts";
import { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelPlaceInit, ModelPlaceReady, ModelReport } from "../messages.ts";
import { modelModule } from "../placement.ts";
import { ManagedModel } from "./managed-model.ts";
import { resolveName, unknownModel } from "./model-names.ts";
import type { ModelUsers } from "./model-process.ts";
import { ModelSlots } from "./model-slots.ts";
import type { ServedModel } from "./served-model.ts";

export class ModelManager implements ModelManagement {
  /** The adapters of them all. */
  readonly lora: LoraRegistry;
  readonly #options: ServiceOptions;
  /** By id, in configured order. */
  readonly #lives = new Map<string, ManagedModel>();
  /** Those that are loaded with the server: the default one, and as many others as there is room for. */
  readonly #first: ReadonlySet<string>;
  /** Somebody watches how far the loading is; not while the server serves. */
  #showsProgress = true;
  #isStopped = false;

  constructor(options: ServiceOptions, system: ActorSystem, users: ModelUsers) {
    const { models, maxLoadedModels, defaultModelId, limits, clock = realClock } = options;
    const { log, restart, loadTimeoutMs, idleUnloadMs } = options;
    const others = models.map(({ id }) => id).filter((id) => id !== defaultModelId);
    const slots = new ModelSlots(maxLoadedModels);
    const gate = new AdapterLoadLock();
    this.#options = options;
    this.#first = new Set([defaultModelId, ...others].slice(0, maxLoadedModels ?? models.length));
    for (const served of models) {
      const life = new ManagedModel({
        served,
        adapters: this.#adaptersOf(served, gate),
        loadsAtStart: this.#first.has(served.id),
        spawn: (signal) => this.#spawn(served, signal),
        users,
        system,
        slots,
        maxWaiting: limits.maxQueue,
        idleUnloadMs,
        loadTimeoutMs,
        restart,
        clock,
        log,
      });
      this.#lives.set(served.id, life);
    }
    this.lora = new LoraRegistry(new Map(this.all.map(({ id, adapters }) => [id, adapters])));
  }

  get all(): readonly ManagedModel[] {
    return [...this.#lives.values()];
  }

  /** Loads those that are to be loaded with the server. Rejects with the first failure; never settles where stop() comes first. */
  async start(): Promise<void> {
    await this.#preload();
    await Promise.all(this.all.filter(({ id }) => this.#first.has(id)).map((life) => life.start()));
    for (const { adapters } of this.all) adapters?.serverStarted();
    this.#showsProgress = false;
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.all.map((life) => life.stop(deadlineMs)));
    await Promise.all(this.all.map(({ adapters }) => adapters?.close()));
  }

  entries(): readonly ModelEntry[] {
    return this.all.map(({ id, status, createdAt, model, adapters }) => {
      return { id, status, createdAt, capabilities: model.capabilities, adapters: adapters?.entries() ?? [] };
    });
  }

  resolve(requested: string | undefined): ResolvedModel {
    return resolveName(requested, this.entries(), this.#options.defaultModelId);
  }

  /** Of a model by its id. Throws model_not_found. */
  get(id: string): ManagedModel {
    const life = this.#lives.get(id);
    if (life === undefined) throw unknownModel(id, this.entries());
    return life;
  }

  /** Of a model by its id or "default". Throws model_not_found. */
  named(name: string): ManagedModel {
    return this.get(name === "default" ? this.#options.defaultModelId : name);
  }

  statusOf(name: string): ModelOutcome {
    return this.named(name).outcome;
  }

  async reload(name: string): Promise<ModelOutcome> {
    return await this.named(name).reload();
  }

  async unload(name: string): Promise<ModelOutcome> {
    return await this.named(name).unload();
  }

  async #preload(): Promise<void> {
    try {
      await Promise.all(this.all.map(({ adapters }) => adapters?.preload()));
    } catch (error) {
      // What stop() has broken off is no reason why the server could not start.
      if (this.#isStopped) await new Promise(() => {});
      throw error;
    }
  }

  #adaptersOf({ id, spec, adapters }: ServedModel, gate: AdapterLoadLock): ModelAdapters | null {
    if (adapters === null) return null;
    const { adapterFolder, adapterRoot } = this.#options;
    return new ModelAdapters({
      modelId: id,
      modelPath: spec.path,
      settings: adapters,
      folder: adapterFolder,
      root: adapterRoot,
      gate,
      log: this.#options.log,
      whileLoaded: (task) => this.get(id).whileLoaded(task),
    });
  }

  #spawn(served: ServedModel, signal: AbortSignal): Promise<Place<ModelPlaceReady>> {
    const { limits, frameIntervalMs, speculation, prefixStore, agents, loadTimeoutMs } = this.#options;
    const { id, engine, spec, carrier } = served;
    return spawnPlace<ModelPlaceInit, ModelPlaceReady>({
      name: `model:${id}`,
      signal,
      module: this.#options.modelModule ?? modelModule,
      init: { engine, spec, limits, frameIntervalMs, speculation, prefixStore, mailboxLimit: agents.mailboxLimit },
      carrier,
      startTimeoutMs: loadTimeoutMs,
      onProgress: (report) => this.#reported(id, report as ModelReport),
    });
  }

  #reported(id: string, report: ModelReport): void {
    if (typeof report !== "number") this.#options.log.warn({ model: id }, report.notice);
    else if (this.#showsProgress) this.#options.onLoadProgress(id, report);
  }
}
