// Owns the main thread's side of inference: starts the places, keeps each model supervised, and turns a request into a
// stream of events from the agents place. Implements Inference for http/. It never sees a token.
import type { GenerateEvent, GenerateRequest } from "../engines/chat.ts";
import type { PrefixStoreOptions } from "../engines/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../engines/scheduler/scheduler.ts";
import type { SpeculationOptions } from "../engines/speculation/options.ts";
import type { Ref } from "../runtime/actor/ref.ts";
import { StreamHub } from "../runtime/actor/stream.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../runtime/actor/supervision.ts";
import { ActorSystem } from "../runtime/actor/system.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import type { Logger } from "../runtime/log.ts";
import { ticketTransfer } from "../runtime/thread/dial.ts";
import type { PeerExit } from "../runtime/thread/endpoint.ts";
import { type Place, spawnPlace } from "../runtime/thread/place.ts";
import { type EngineMetric, engineMetrics, latencyMetrics } from "./engine-metrics.ts";
import type { Embeddings, EmbedRequest, Inference, ModelEntry } from "./inference.ts";
import {
  type AgentsPlaceInit,
  type AgentsProtocol,
  type EmbedEvent,
  eventChannel,
  type ModelPlaceInit,
  type ModelPlaceReady,
  type ModelProtocol,
  type ModelReport,
  type ModelStatistics,
  type ModelsProtocol,
} from "./messages.ts";
import {
  capabilitiesOf,
  failed,
  loadedFields,
  loading,
  type ModelState,
  modelState,
  type ServedModel,
  type ServedStatistics,
} from "./model-state.ts";
import { agentsModule, modelModule } from "./placement.ts";

export type { ServedModel } from "./model-state.ts";

export interface FrontOptions {
  readonly models: readonly ServedModel[];
  readonly defaultModelId: string;
  /** Seed of requests that bring none; null draws one. */
  readonly defaultSeed: number | null;
  readonly limits: SchedulerLimits;
  /** What runs on a model's place, where it is not the real thing: for benchmarks. */
  readonly modelModule?: URL;
  readonly frameIntervalMs: number;
  readonly speculation: SpeculationOptions;
  readonly prefixStore: PrefixStoreOptions | null;
  readonly agents: AgentsPlaceInit;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly log: Logger;
  /** Fraction loaded, by model. */
  readonly onLoadProgress: (id: string, fraction: number) => void;
}

interface AgentsLink {
  readonly place: Place<null>;
  readonly actor: Ref<AgentsProtocol>;
  readonly models: Ref<ModelsProtocol>;
  readonly hub: StreamHub;
}

type ErrorEvent = Extract<GenerateEvent, { readonly type: "error" }>;

const metricsTimeoutMs = 5000;

/** What a request is told that the end of its model's place has ended. */
const shuttingDown: ErrorEvent = {
  type: "error",
  error: { code: "draining", message: "the server is shutting down; send the request to another one" },
};

export class Front implements Inference {
  readonly #options: FrontOptions;
  readonly #system = new ActorSystem("front");
  readonly #models = new Map<string, ModelState>();
  #agents: AgentsLink | null = null;
  #agentsSupervisor: Supervisor | null = null;
  #nextRun = 1;
  #isStopping = false;

  constructor(options: FrontOptions) {
    this.#options = options;
    for (const served of options.models) this.#models.set(served.id, modelState(served, options.log));
  }

  /** Starts the agents place and loads every model. Rejects with the first failure; stop() cleans up after it. */
  async start(): Promise<void> {
    await this.#startAgents();
    await Promise.all([...this.#models.values()].map((model) => this.#startModel(model)));
  }

  /** Stops every place: models first, so that nothing new is generated. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    const models = [...this.#models.values()];
    for (const { refusals } of models) refusals.flush();
    for (const { served } of models) if (served.spec.abortFlag) new Uint8Array(served.spec.abortFlag)[0] = 1;
    await Promise.all(models.map((model) => model.supervisor?.stop(deadlineMs)));
    await this.#agentsSupervisor?.stop(deadlineMs);
    await this.#system.stop();
  }

  models(): readonly ModelEntry[] {
    return [...this.#models.values()].map(({ served, status, createdAt, capabilities }) => {
      return { id: served.id, status, createdAt, capabilities };
    });
  }

  resolveModel(requested: string | undefined): string {
    const id = requested === undefined || requested === "default" ? this.#options.defaultModelId : requested;
    if (this.#models.has(id)) return id;
    throw new ServerError(
      "model_not_found",
      `Requested model '${requested}' is not available. Available models: default, ${[...this.#models.keys()].join(", ")}`,
      { param: "model" },
    );
  }

  /** A model that does not answer soon (it is starting, ending, or in a long step) counts as it did when it last answered. */
  async engineMetrics(): Promise<readonly EngineMetric[]> {
    const asked = [...this.#models.values()].map(async ({ place, statistics }) => {
      if (place === null) return;
      const ref = this.#system.ref<ModelProtocol>("model", place.endpoint);
      statistics.seen(await ref.ask("statistics", null, { timeoutMs: metricsTimeoutMs }));
    });
    await Promise.allSettled(asked);
    const totals = new Map<string, ModelStatistics>();
    for (const [id, { statistics }] of this.#models) {
      const total = statistics.total();
      if (total !== null) totals.set(id, total);
    }
    return [...engineMetrics([...totals.values()]), ...latencyMetrics(totals)];
  }

  /** Asks the model how it is doing. Throws model_not_found, or why it takes no requests. */
  async statistics(id: string): Promise<ServedStatistics> {
    const model = this.#models.get(this.resolveModel(id)) as ModelState;
    if (!model.place) throw fromErrorRecord(model.unavailable);
    const { queueFull, queueTimeouts } = model.refusals;
    const statistics = await this.#system.ref<ModelProtocol>("model", model.place.endpoint).ask("statistics", null);
    return { ...statistics, queueFull, queueTimeouts };
  }

  generate(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<readonly GenerateEvent[]> {
    const start = (agents: AgentsLink, run: number) =>
      agents.actor.ask("start", { run, request: this.#seeded(request) });
    return this.#events<GenerateEvent>(request.model, signal, start);
  }

  async countTokens(request: GenerateRequest): Promise<number> {
    const model = this.#models.get(request.model);
    const agents = this.#agents;
    if (model?.status !== "loaded" || !agents) throw fromErrorRecord(model?.unavailable ?? loading(request.model));
    return agents.actor.ask("countTokens", { request });
  }

  async embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings> {
    const start = (agents: AgentsLink, run: number) => agents.actor.ask("embed", { run, request });
    for await (const [event] of this.#events<EmbedEvent>(request.model, signal, start)) {
      if (event?.type === "error") throw fromErrorRecord(event.error);
      if (event) return event.embeddings;
    }
    throw new ServerError("cancelled", "the request was cancelled before its embeddings were made");
  }

  /** The events of a run on a model, which `start` asks the agents place for. */
  async *#events<Event extends { readonly type: string }>(
    id: string,
    signal: AbortSignal,
    start: (agents: AgentsLink, run: number) => Promise<unknown>,
  ): AsyncGenerator<readonly (Event | ErrorEvent)[]> {
    const model = this.#models.get(id);
    const agents = this.#agents;
    if (model?.status !== "loaded" || !agents) {
      yield [{ type: "error", error: model?.unavailable ?? loading(id) }];
      return;
    }
    const run = this.#nextRun++;
    const reader = agents.hub.reader<Event | ErrorEvent>(run);
    const cancel = () => reader.cancel();
    const refused: { error?: ErrorRecord } = {};
    signal.addEventListener("abort", cancel, { once: true });
    try {
      if (signal.aborted) return;
      start(agents, run).catch((error: unknown) => {
        refused.error = toErrorRecord(error);
        reader.cancel();
      });
      for await (const batch of reader) {
        const last = batch.at(-1);
        if (last && "error" in last) model.refusals.note(last.error.code);
        if (last && "error" in last && this.#isStopping) yield [...batch.slice(0, -1), shuttingDown];
        else yield batch;
      }
      if (refused.error && !signal.aborted) yield [{ type: "error", error: refused.error }];
    } catch (error) {
      yield [{ type: "error", error: toErrorRecord(error) }];
    } finally {
      signal.removeEventListener("abort", cancel);
      reader.cancel();
    }
  }

  #seeded(request: GenerateRequest): GenerateRequest {
    const { defaultSeed } = this.#options;
    if (defaultSeed === null || request.sampling.seed !== null) return request;
    return { ...request, sampling: { ...request.sampling, seed: defaultSeed } };
  }

  async #startAgents(): Promise<void> {
    const { agents, restart, loadTimeoutMs, log } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#agentsSupervisor = supervise<null>({
        name: "agents",
        start: (signal) =>
          spawnPlace<AgentsPlaceInit, null>({
            signal,
            name: "agents",
            module: agentsModule,
            init: agents,
            carrier: "thread",
            startTimeoutMs: loadTimeoutMs,
          }),
        policy: restart,
        onUp: async (place) => {
          const hub = new StreamHub(place.endpoint, { channel: eventChannel, window: agents.streamWindow });
          this.#agents = {
            place,
            hub,
            actor: this.#system.ref<AgentsProtocol>("agents", place.endpoint),
            models: this.#system.ref<ModelsProtocol>("models", place.endpoint),
          };
          const loaded = [...this.#models.values()].filter((model) => model.place !== null);
          await Promise.all(loaded.map((model) => this.#attach(model)));
          resolve();
        },
        onDown: (exit, next) => {
          this.#agents = null;
          if (exit.orderly) return;
          log.error({ reason: exit.reason, retryInMs: next?.retryInMs }, "the agents place ended; its requests failed");
        },
        onEscalate: (error) => {
          log.error({ err: error }, "the agents place does not stay up; every request is refused until a restart");
          reject(error);
        },
      });
    });
  }

  async #startModel(model: ModelState): Promise<void> {
    const { served } = model;
    const { log, restart } = this.#options;
    await new Promise<void>((resolve, reject) => {
      model.supervisor = supervise<ModelPlaceReady>({
        name: `model ${served.id}`,
        start: (signal) => this.#spawnModel(model, signal),
        policy: restart,
        onUp: async (place) => {
          model.place = place;
          model.capabilities = capabilitiesOf(place.ready);
          await this.#attach(model);
          // It may have died meanwhile: then onDown has said so already.
          if (model.place !== place) return;
          model.status = "loaded";
          log.info(loadedFields(model, place), "model loaded");
          resolve();
        },
        onDown: (exit, next) => this.#modelDown(model, exit, next),
        onEscalate: (error) => {
          model.status = "unloaded";
          model.unavailable = failed(served.id, error);
          log.error({ model: served.id, err: error }, "a model does not stay up; it is given up");
          reject(error);
        },
      });
    });
  }

  #spawnModel(model: ModelState, signal: AbortSignal): Promise<Place<ModelPlaceReady>> {
    const { served } = model;
    model.loadStartedMs = performance.now();
    return spawnPlace<ModelPlaceInit, ModelPlaceReady>({
      name: `model:${served.id}`,
      signal,
      module: this.#options.modelModule ?? modelModule,
      init: {
        engine: served.engine,
        spec: served.spec,
        limits: this.#options.limits,
        frameIntervalMs: this.#options.frameIntervalMs,
        speculation: this.#options.speculation,
        prefixStore: this.#options.prefixStore,
        mailboxLimit: this.#options.agents.mailboxLimit,
      },
      carrier: served.carrier,
      startTimeoutMs: this.#options.loadTimeoutMs,
      onProgress: (report) => this.#modelReported(served.id, report as ModelReport),
    });
  }

  #modelReported(id: string, report: ModelReport): void {
    if (typeof report === "number") this.#options.onLoadProgress(id, report);
    else this.#options.log.warn({ model: id }, report.notice);
  }

  /** Makes the model usable by the agents place, if both are up. */
  async #attach(model: ModelState): Promise<void> {
    const { place, served } = model;
    const agents = this.#agents;
    if (!place || !agents) return;
    try {
      const ticket = await place.dial();
      const { id, spec, chatTemplate, jinjaExplicit } = served;
      const message = { id, path: spec.path, chatTemplate, jinjaExplicit, ready: place.ready, ticket };
      const options = { timeoutMs: this.#options.loadTimeoutMs, transfer: ticketTransfer(ticket) };
      await agents.models.ask("attachModel", message, options);
    } catch (error) {
      // One of the two has died. Its next life attaches again; the other one must not die of it.
      if (toErrorRecord(error).code !== "peer_gone") throw error;
    }
  }

  #modelDown(model: ModelState, exit: PeerExit, next: { readonly retryInMs: number } | null): void {
    const { id } = model.served;
    model.place = null;
    model.statistics.ended();
    model.status = next ? "reloading" : "unloaded";
    model.unavailable = loading(id);
    this.#agents?.models.tell("detachModel", { id, error: model.unavailable });
    if (exit.orderly || this.#isStopping) return;
    const fields = { model: id, reason: exit.reason, retryInMs: next?.retryInMs };
    this.#options.log.error(fields, "a model's engine ended; its requests failed");
  }
}
