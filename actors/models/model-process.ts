// Owns the place of one model while it is to live: keeps it supervised, makes it ready for requests (its adapters, the link
// to the agents), and counts over all its places. Started and stopped by ManagedModel, which alone knows of requests.
import type { Ref } from "../../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { PeerExit } from "../../runtime/endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Place } from "../../runtime/thread/place.ts";
import type { ModelCapabilities } from "../api/inference.ts";
import type { ModelAdapters } from "../lora-registry/model-adapters.ts";
import type { ModelPlaceReady, ModelProtocol, ModelStatistics } from "../messages.ts";
import { CumulativeStatistics } from "./cumulative-statistics.ts";
import { capabilitiesOf, loadedFields, loading, notLoaded, ownRunAdapter, type ServedModel } from "./served-model.ts";

/** Where requests find models that are loaded. */
export interface ModelUsers {
  attach(served: ServedModel, place: Place<ModelPlaceReady>): Promise<void>;
  detach(id: string, error: ErrorRecord): void;
}

export interface SupervisedModelOptions {
  readonly served: ServedModel;
  /** Its dynamic LoRA runtime; null where it has none. */
  readonly adapters: ModelAdapters | null;
  readonly spawn: (signal: AbortSignal) => Promise<Place<ModelPlaceReady>>;
  readonly users: ModelUsers;
  readonly system: ActorSystem;
  readonly clock: Clock;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly log: Logger;
}

/** What its places do by themselves: none of these is called for what stop() does. */
export interface SupervisedModelHooks {
  /** It takes requests from now on. */
  onUp(): void;
  /** It was up, has ended, and is started again. */
  onCrash(): void;
  /** It has ended, or could not be started, and is not started again. */
  onGivenUp(error: ServerError): void;
}

const statisticsTimeoutMs = 5000;

export class ModelProcess {
  /** As it was when it was last loaded. */
  capabilities: ModelCapabilities | null = null;
  readonly statistics = new CumulativeStatistics();
  readonly #options: SupervisedModelOptions;
  readonly #hooks: SupervisedModelHooks;
  #supervisor: Supervisor | null = null;
  #place: Place<ModelPlaceReady> | null = null;
  #isUp = false;
  #isStopping = false;
  /** A place that is being made ready can tell by it that it has ended. */
  #endedCount = 0;
  #startedMs = 0;
  #givenUpFor: ServerError | null = null;
  #onDecided: (() => void) | null = null;

  constructor(options: SupervisedModelOptions, hooks: SupervisedModelHooks) {
    this.#options = options;
    this.#hooks = hooks;
  }

  get served(): ServedModel {
    return this.#options.served;
  }

  /** There is a place, or one is being started, or will be. */
  get isAlive(): boolean {
    return this.#supervisor !== null;
  }

  /** start() has not settled. */
  get isStarting(): boolean {
    return this.#onDecided !== null;
  }

  /** What the agents can be linked to now. */
  get place(): Place<ModelPlaceReady> | null {
    return this.#place;
  }

  /** Settles when it is up, given up or stopped. */
  async start(): Promise<void> {
    const { served, restart, clock } = this.#options;
    this.#isStopping = false;
    const decided = new Promise<void>((resolve) => {
      this.#onDecided = resolve;
    });
    this.#supervisor = supervise<ModelPlaceReady>({
      name: `model ${served.id}`,
      start: (signal) => this.#spawn(signal),
      policy: restart,
      clock,
      onUp: (place) => this.#up(place),
      onDown: (exit, next) => this.#down(exit, next),
      onEscalate: (error) => {
        this.#givenUpFor = error;
      },
    });
    await decided;
  }

  /** Ends it, whatever it is at. Settles when nothing of it is left. */
  async stop(deadlineMs: number): Promise<void> {
    const supervisor = this.#supervisor;
    this.#isStopping = true;
    await supervisor?.stop(deadlineMs);
    // Another caller's stop() may have settled first, and it may have been started since.
    if (this.#supervisor !== supervisor) return;
    this.#supervisor = null;
    this.#decided();
  }

  ref(): Ref<ModelProtocol> {
    const { served, system } = this.#options;
    if (this.#place === null) throw fromErrorRecord(this.isAlive ? loading(served.id) : notLoaded(served.id));
    return system.ref<ModelProtocol>("model", this.#place.endpoint);
  }

  /** Asks its place how it is doing. Throws model_loading, model_state_conflict. */
  async currentStatistics(timeoutMs?: number): Promise<ModelStatistics> {
    const current = await this.ref().ask("statistics", null, timeoutMs === undefined ? {} : { timeoutMs });
    this.statistics.seen(current);
    return current;
  }

  /** Notes what its place has counted, if there is one and it answers soon. */
  async count(): Promise<void> {
    await this.currentStatistics(statisticsTimeoutMs).catch(() => undefined);
  }

  #spawn(signal: AbortSignal): Promise<Place<ModelPlaceReady>> {
    this.#startedMs = performance.now();
    return this.#options.spawn(signal);
  }

  async #up(place: Place<ModelPlaceReady>): Promise<void> {
    const { served, users, log } = this.#options;
    const endedCount = this.#endedCount;
    await this.#equip(place);
    if (this.#endedCount !== endedCount) return;
    this.#place = place;
    await users.attach(served, place);
    // It may have died meanwhile: then #down has said so already.
    if (this.#endedCount !== endedCount || this.#isStopping) return;
    this.#isUp = true;
    this.capabilities = capabilitiesOf(place.ready);
    log.info(loadedFields(served.id, performance.now() - this.#startedMs, place), "model loaded");
    this.#decided();
    this.#hooks.onUp();
  }

  /** Has the place load the adapters that requests may name. */
  async #equip(place: Place<ModelPlaceReady>): Promise<void> {
    const { served, adapters, system, loadTimeoutMs } = this.#options;
    const model = system.ref<ModelProtocol>("model", place.endpoint);
    if (served.ownAdapter !== null) {
      const { generation, path } = served.ownAdapter;
      await model.ask("loadAdapter", { id: ownRunAdapter.id, generation, path }, { timeoutMs: loadTimeoutMs });
    }
    await adapters?.attach(model, () => this.#isStopping);
  }

  #down(exit: PeerExit, next: { readonly retryInMs: number } | null): void {
    const { served, users, log } = this.#options;
    const { id } = served;
    const wasUp = this.#isUp;
    this.#endedCount++;
    this.#isUp = false;
    this.#place = null;
    this.statistics.ended();
    users.detach(id, loading(id));
    if (this.#isStopping) {
      if (!exit.orderly && wasUp)
        log.warn({ model: id, reason: exit.reason }, "a model's engine did not stop in order");
      return;
    }
    if (!exit.orderly) {
      const fields = { model: id, reason: exit.reason, retryInMs: next?.retryInMs };
      log.error(fields, "a model's engine ended; its requests failed");
    }
    if (next === null) {
      this.#givenUpFor = new ServerError("peer_gone", exit.reason);
      // The supervisor may have a better reason to give, and does it before it returns.
      queueMicrotask(() => this.#givenUp());
    } else if (wasUp) this.#hooks.onCrash();
  }

  #givenUp(): void {
    if (this.#isStopping || this.#givenUpFor === null) return;
    this.#supervisor = null;
    this.#options.log.error(
      { model: this.#options.served.id, err: this.#givenUpFor },
      "a model does not stay up; it is given up",
    );
    this.#hooks.onGivenUp(this.#givenUpFor);
    this.#decided();
  }

  #decided(): void {
    this.#onDecided?.();
    this.#onDecided = null;
  }
}
