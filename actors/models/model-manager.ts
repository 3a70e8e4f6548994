// ModelManager: creates all models from the options, starts and stops them together, and finds models by name.
import type { ActorSystem } from "../../runtime/actor/system.ts";
import { realClock } from "../../runtime/clock.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelEntry, ResolvedModel } from "../api/inference.ts";
import type { ServiceOptions } from "../front/service-options.ts";
import { AdapterLoadLock } from "../lora-registry/adapter-load-lock.ts";
import { LoraRegistry } from "../lora-registry/lora-registry.ts";
import { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type {
  DiffusionPlaceInit,
  ModelPlaceInit,
  ModelPlaceReady,
  ModelReport,
  RemotePlaceInit,
  RemoteTextPlaceInit,
  SpeechPlaceInit,
} from "../messages.ts";
import { diffusionModule, modelModule, remoteModelModule, remoteTextModule, speechModule } from "../placement.ts";
import { CumulativeStatistics } from "./cumulative-statistics.ts";
import { ManagedModel, type ManagedModelOptions } from "./managed-model.ts";
import { resolveName, unknownModel } from "./model-names.ts";
import type { ModelUsers } from "./model-process.ts";
import { ModelSlots } from "./model-slots.ts";
import { type ServedModel, tokenless } from "./served-model.ts";

/** Maximum time in ms for the process of a removed model to stop. */
const removalDeadlineMs = 5000;

type PlaceInit = ModelPlaceInit | RemotePlaceInit | RemoteTextPlaceInit | SpeechPlaceInit | DiffusionPlaceInit;

/** Returns the module of a model's worker and its start parameters. */
function moduleOf(served: ServedModel, options: ServiceOptions): { readonly module: URL; readonly init: PlaceInit } {
  const { engine, spec, speech, diffusion, remote, textRemote } = served;
  const { limits, frameIntervalMs, speculation, prefixStore } = options;
  const { mailboxLimit } = options.generationPlace;
  if (speech !== undefined) return { module: speechModule, init: { ...speech, mailboxLimit } };
  if (diffusion !== undefined) return { module: diffusionModule, init: { ...diffusion, mailboxLimit } };
  const { queueTimeoutMs, maxQueue } = limits;
  const queue = { queueTimeoutMs, maxQueue, mailboxLimit };
  if (textRemote !== undefined) return { module: remoteTextModule, init: { settings: textRemote, ...queue } };
  if (engine === "remote") {
    if (!remote) throw new Error(`remote model "${served.id}" has no settings`);
    const { path, maxModelLength, kind } = spec;
    const own = { settings: remote, path, maxModelLength, frameIntervalMs };
    const init: RemotePlaceInit = { ...own, kind: kind === "embedding" ? kind : "text", ...queue };
    return { module: remoteModelModule, init };
  }
  const init: ModelPlaceInit = { engine, spec, limits, frameIntervalMs, speculation, prefixStore, mailboxLimit };
  return { module: options.modelModule ?? modelModule, init };
}

export class ModelManager {
  /** Adapters of all models. */
  readonly lora: LoraRegistry;
  /** Statistics of removed models, kept because counters must not decrease. */
  readonly removed = new CumulativeStatistics();
  readonly #options: ServiceOptions;
  /** Models by id, in the order of the settings. */
  readonly #models = new Map<string, ManagedModel>();
  /** Ids of the models that start() loads: the default model, and further models up to the number of slots. */
  readonly #atStart: ReadonlySet<string>;
  readonly #create: (served: ServedModel) => ManagedModel;
  #isStarting = true;
  #isStopped = false;

  constructor(options: ServiceOptions, system: ActorSystem, users: ModelUsers) {
    const { models, maxLoadedModels, defaultModelId, limits, clock = realClock } = options;
    const others = models.map(({ id }) => id).filter((id) => id !== defaultModelId);
    const slots = new ModelSlots(maxLoadedModels);
    const gate = new AdapterLoadLock();
    this.#options = options;
    this.#atStart = new Set([defaultModelId, ...others].slice(0, maxLoadedModels ?? models.length));
    this.#create = (served) => {
      const adapters = this.#adaptersOf(served, gate);
      const spawn: ManagedModelOptions["spawn"] = (now, signal) => this.#spawn(now, signal);
      // A speech or diffusion model that cannot be loaded must not prevent the start, for example if its library is not installed.
      const loadsAtStart = this.#atStart.has(served.id) && tokenless(served) === null;
      const maxWaiting = limits.maxQueue;
      const own = { served, adapters, spawn, loadsAtStart, maxWaiting };
      return new ManagedModel({ ...options, ...own, system, users, slots, clock });
    };
    for (const served of models) this.#models.set(served.id, this.#create(served));
    this.lora = new LoraRegistry(this.#models);
  }

  get all(): readonly ManagedModel[] {
    return [...this.#models.values()];
  }

  /** Loads adapters and models at the start of the server. Rejects with the first failure. Never settles if stop() is called first. */
  async start(): Promise<void> {
    try {
      await Promise.all(this.all.map(({ adapters }) => adapters?.preload()));
      await Promise.all(this.all.filter(({ id }) => this.#atStart.has(id)).map(startModel));
    } catch (error) {
      // stop() aborts the preparation of adapters; the resulting error is not a failure of the start.
      if (!this.#isStopped) throw error;
    }
    if (this.#isStopped) await new Promise(() => {});
    for (const { adapters } of this.all) adapters?.serverStarted();
    this.#isStarting = false;
  }

  /** Adds a model while the server runs. It is loaded when a request names it. Throws conflict if the id is taken. */
  add(served: ServedModel): void {
    if (this.#isStopped) throw new ServerError("draining", "the server is shutting down");
    if (this.#models.has(served.id)) throw new ServerError("conflict", `there is a model "${served.id}" already`);
    const model = this.#create(served);
    this.#models.set(served.id, model);
    model.adapters?.serverStarted();
  }

  /** Removes a model: running requests finish, waiting ones are rejected. Throws model_not_found. */
  async remove(id: string): Promise<void> {
    const model = this.get(id);
    this.#models.delete(id);
    await model.retire(toErrorRecord(unknownModel(id, this.entries())));
    await model.stop(removalDeadlineMs);
    await model.adapters?.close();
    const total = model.model.statistics.total();
    if (total === null) return;
    // Per-server counters of a remote model are not kept.
    const { remote: _, ...counts } = total;
    this.removed.seen(counts);
    this.removed.ended();
  }

  async stop(deadlineMs: number): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.all.map((model) => model.stop(deadlineMs)));
    await Promise.all(this.all.map(({ adapters }) => adapters?.close()));
  }

  entries(): readonly ModelEntry[] {
    return this.all.map((managed) => {
      const { id, status, createdAt, served, model, adapters, loadFraction, requantization } = managed;
      const { defaults, spec, speech, diffusion } = served;
      return {
        id,
        status,
        createdAt,
        path: spec.path,
        isDownloaded: served.isDownloaded ?? false,
        defaults,
        loadProgress: status === "reloading" ? loadFraction : null,
        requantization,
        capabilities: model.capabilities,
        adapters: adapters?.entries() ?? [],
        isDiffusion: diffusion !== undefined,
        speech: speech === undefined ? null : { task: speech.spec.task, engine: speech.spec.engine },
        loadError: managed.outcome.error?.message ?? null,
      };
    });
  }

  resolve(requested: string | undefined): ResolvedModel {
    const named = resolveName(requested, this.entries(), this.#options.defaultModelId);
    const { served } = this.get(named.id);
    return { ...named, defaults: served.defaults, takesAudio: Boolean(served.spec?.audio) };
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

  #spawn(served: ServedModel, signal: AbortSignal): Promise<Place<ModelPlaceReady>> {
    const { id, kind } = served;
    return spawnPlace<PlaceInit, ModelPlaceReady>({
      name: `model:${id}`,
      signal,
      ...moduleOf(served, this.#options),
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
    const model = this.#models.get(id);
    if (model === undefined) return;
    model.loadFraction = report;
    if (this.#isStarting) this.#options.onLoadProgress(id, report);
  }
}

/** Loads a model. If a speech or diffusion model fails to load, the failure is only logged, and the server still starts. */
async function startModel(model: ManagedModel): Promise<void> {
  if (tokenless(model.served) === null) await model.start();
  else await model.start().catch(() => undefined);
}
