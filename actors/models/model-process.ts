// ModelProcess: the worker (a child process or thread) of one model. It supervises the worker, loads its adapters, attaches it
// to the generation thread, and sums its statistics over restarts. ManagedModel starts and stops it.
import type { Ref } from "../../runtime/actor/ref.ts";
import { type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { PeerExit } from "../../runtime/endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Place } from "../../runtime/thread/place.ts";
import type { ModelCapabilities, ModelFileFacts } from "../api/inference.ts";
import type { ServiceOptions } from "../front/service-options.ts";
import type { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelPlaceReady, ModelProtocol, ModelStatistics, RemoteTextProtocol } from "../messages.ts";
import { CumulativeStatistics } from "./cumulative-statistics.ts";
import {
  capabilitiesOf,
  contextCut,
  defaultFields,
  loadedFields,
  loading,
  notLoaded,
  ownRunAdapter,
  type ServedModel,
  tokenless,
} from "./served-model.ts";

/** Receiver of loaded models: the part of the server that sends requests to them. */
export interface ModelUsers {
  /** Attaches a model. Resolves to the facts from the model's file; null = they were not read. */
  attach(served: ServedModel, place: Place<ModelPlaceReady>): Promise<ModelFileFacts | null>;
  /** Detaches a model whose worker has ended. `place`: the worker; null = it was not attached. `error`: reason for its requests. */
  detach(id: string, place: Place<ModelPlaceReady> | null, error: ErrorRecord): void;
}

export interface ModelProcessOptions extends Pick<ServiceOptions, "restart" | "loadTimeoutMs" | "log"> {
  readonly served: ServedModel;
  /** Whether the server loads the model at its start, and exits if the load fails. */
  readonly loadsAtStart: boolean;
  /** Manages adapters that are loaded at run time; null = the model does not support adapters. */
  readonly adapters: ModelAdapters | null;
  readonly spawn: (served: ServedModel, signal: AbortSignal) => Promise<Place<ModelPlaceReady>>;
  readonly users: ModelUsers;
  readonly system: ActorSystem;
  readonly clock: Clock;
}

/** Callbacks for events of the worker. Not called after stop(). */
export interface ModelProcessHooks {
  /** The worker now accepts requests. */
  onUp(): void;
  /** The worker has ended or failed to start. `error`: null = it was up and will be restarted; otherwise it will not be restarted. */
  onDown(error: ServerError | null): void;
}

const statisticsTimeoutMs = 5000;

export class ModelProcess {
  /** Settings of the worker. A change takes effect at the next start of the worker. */
  served: ServedModel;
  readonly statistics = new CumulativeStatistics();
  /** Capabilities of the model; null until it is loaded for the first time. */
  capabilities: ModelCapabilities | null = null;
  /** The worker, once its adapters are loaded and it can be attached to the generation thread; null = not ready. */
  place: Place<ModelPlaceReady> | null = null;
  /** Whether the worker accepts requests. */
  isUp = false;
  readonly #options: ModelProcessOptions;
  readonly #hooks: ModelProcessHooks;
  #supervisor: Supervisor | null = null;
  /** The current worker, set before its adapters are loaded; null = no worker. */
  #started: Place<ModelPlaceReady> | null = null;
  #isStopping = false;
  #startedMs = 0;

  constructor(options: ModelProcessOptions, hooks: ModelProcessHooks) {
    this.served = options.served;
    this.#options = options;
    this.#hooks = hooks;
  }

  /** Starts the worker without waiting for it. An ended worker is restarted until stop() is called or the supervisor gives up. */
  start(): void {
    const { served, restart, clock, spawn } = this.#options;
    this.#isStopping = false;
    this.#supervisor = supervise<ModelPlaceReady>({
      name: `model ${served.id}`,
      start: (signal) => {
        this.#startedMs = performance.now();
        return spawn(this.served, signal);
      },
      // Restarts are unlimited for a remote model: its servers may be down for any time, and giving up would not help.
      policy: served.remote ? { ...restart, maxRestarts: Number.POSITIVE_INFINITY } : restart,
      clock,
      onUp: (place) => this.#up(place),
      onDown: (exit, next) => this.#down(exit, next?.retryInMs ?? null),
      onEscalate: (error) => this.#giveUp(error),
    });
  }

  /** Stops the worker, even during its start or restart. Resolves when the worker has ended. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    await this.#supervisor?.stop(deadlineMs);
    this.#supervisor = null;
  }

  /**
   * Returns the model actor of the worker. Throws model_loading, model_state_conflict; `unsupported` for a model that does not
   * generate tokens.
   */
  ref(): Ref<ModelProtocol> {
    const refusal = tokenless(this.served);
    if (refusal !== null) throw fromErrorRecord(refusal);
    return this.#options.system.ref<ModelProtocol>("model", this.#loaded().endpoint);
  }

  /** Returns the worker. Throws model_loading, model_state_conflict. */
  #loaded(): Place<ModelPlaceReady> {
    if (this.place !== null) return this.place;
    throw fromErrorRecord((this.#supervisor === null ? notLoaded : loading)(this.served.id));
  }

  /** Returns the statistics of the current worker. Throws model_loading, model_state_conflict. */
  async currentStatistics(timeoutMs?: number): Promise<ModelStatistics> {
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    // A remote model in text mode has statistics, though it generates no tokens.
    const current =
      this.served.textRemote === undefined
        ? await this.ref().ask("statistics", null, options)
        : await this.#options.system
            .ref<RemoteTextProtocol>("remoteText", this.#loaded().endpoint)
            .ask("statistics", null, options);
    this.statistics.seen(current);
    return current;
  }

  /** Requests the worker's statistics and records them in `statistics`, if the worker replies within the timeout. */
  async count(): Promise<void> {
    await this.currentStatistics(statisticsTimeoutMs).catch(() => undefined);
  }

  async #up(place: Place<ModelPlaceReady>): Promise<void> {
    const { users, log } = this.#options;
    const { served } = this;
    this.#started = place;
    await this.#loadAdapters(place);
    // The worker may have ended while its adapters were loaded. #down has already reported this.
    if (this.#started !== place) return;
    this.place = place;
    const facts = await users.attach(served, place);
    if (this.#started !== place || this.#isStopping) return;
    this.isUp = true;
    const isFirstLoad = this.capabilities === null;
    this.capabilities = capabilitiesOf(place.ready, facts ?? this.capabilities?.file ?? null);
    log.info(loadedFields(served.id, performance.now() - this.#startedMs, place), "model loaded");
    if (isFirstLoad && this.capabilities.generates) log.info(defaultFields(served), "defaults of requests");
    const cut = contextCut(served, place.ready);
    if (cut !== null) log.warn({ model: served.id }, cut);
    this.#hooks.onUp();
  }

  /** Sets the facts from the model's file, if the model has been loaded. They are read late if the generation thread was down. */
  setFileFacts(file: ModelFileFacts): void {
    if (this.capabilities !== null) this.capabilities = { ...this.capabilities, file };
  }

  async #loadAdapters(place: Place<ModelPlaceReady>): Promise<void> {
    const { adapters, system, loadTimeoutMs } = this.#options;
    const { served } = this;
    const model = system.ref<ModelProtocol>("model", place.endpoint);
    if (served.ownAdapter !== null) {
      const { generation, path } = served.ownAdapter;
      await model.ask("loadAdapter", { id: ownRunAdapter.id, generation, path }, { timeoutMs: loadTimeoutMs });
    }
    await adapters?.attach(model, () => this.#isStopping);
  }

  #down({ reason, orderly }: PeerExit, retryInMs: number | null): void {
    const { served, users, log, restart } = this.#options;
    const { isUp: wasUp, place } = this;
    this.isUp = false;
    this.#started = null;
    this.place = null;
    this.statistics.ended();
    users.detach(served.id, place, loading(served.id));
    if (this.#isStopping) {
      if (!orderly && wasUp) log.warn({ model: served.id, reason }, "a model's engine did not stop in order");
      return;
    }
    // A failed load that is not retried is logged by #giveUp instead.
    if (!orderly && (wasUp || retryInMs !== null)) {
      const fields = { model: served.id, reason, retryInMs: retryInMs ?? undefined };
      log.error(fields, wasUp ? "a model's engine ended; its requests failed" : "a model could not be loaded");
    }
    // Other failures that are not retried are reported by onEscalate, which is called next with a more precise reason.
    const isFinal = retryInMs === null && (orderly || restart.kind === "stop");
    if (isFinal) this.#giveUp(new ServerError("peer_gone", reason));
    else if (wasUp && retryInMs !== null) this.#hooks.onDown(null);
  }

  #giveUp(error: ServerError): void {
    if (this.#isStopping) return;
    this.#supervisor = null;
    const { log, loadsAtStart } = this.#options;
    const wasLoaded = this.capabilities !== null;
    const message = wasLoaded ? "a model does not stay up; it is not restarted" : "a model could not be loaded";
    // If the first load at the start of the server fails, the command itself prints the error and exits.
    if (wasLoaded || !loadsAtStart) log.error({ model: this.served.id, reason: error.message }, message);
    this.#hooks.onDown(error);
  }
}
