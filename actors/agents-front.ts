// Owns the agents place as the main thread sees it: keeps it supervised, links to it, and makes the models that are loaded
// known to it. Used by front.ts and, through it, by the lives of the models.
import { SharedTokenTexts, type TokenTexts } from "../engines/tokenizer/token-texts.ts";
import type { Ref } from "../runtime/actor/ref.ts";
import { StreamHub } from "../runtime/actor/stream.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../runtime/actor/supervision.ts";
import type { ActorSystem } from "../runtime/actor/system.ts";
import type { Clock } from "../runtime/clock.ts";
import { type ErrorRecord, toErrorRecord } from "../runtime/errors.ts";
import type { Logger } from "../runtime/log.ts";
import { ticketTransfer } from "../runtime/thread/dial.ts";
import { type Place, spawnPlace } from "../runtime/thread/place.ts";
import {
  type AgentsPlaceInit,
  type AgentsProtocol,
  eventChannel,
  type ModelPlaceReady,
  type ModelsProtocol,
} from "./messages.ts";
import type { ModelUsers } from "./model-lifecycle/supervised-model.ts";
import { agentsModule } from "./placement.ts";
import type { ServedModel } from "./served-model.ts";

export interface AgentsFrontOptions {
  readonly init: AgentsPlaceInit;
  readonly system: ActorSystem;
  readonly clock: Clock;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly log: Logger;
  /** All models; a new place has to know those that have one. */
  readonly models: () => Iterable<{ readonly served: ServedModel; readonly place: Place<ModelPlaceReady> | null }>;
}

export interface AgentsLink {
  readonly actor: Ref<AgentsProtocol>;
  readonly hub: StreamHub;
}

export class AgentsFront implements ModelUsers {
  readonly #options: AgentsFrontOptions;
  #supervisor: Supervisor | null = null;
  #link: AgentsLink | null = null;
  #models: Ref<ModelsProtocol> | null = null;
  /** Of the models that are attached. */
  readonly #tokenTexts = new Map<string, TokenTexts>();

  constructor(options: AgentsFrontOptions) {
    this.#options = options;
  }

  /** null while it is not up. */
  get link(): AgentsLink | null {
    return this.#link;
  }

  async start(): Promise<void> {
    const { init, restart, clock, loadTimeoutMs, log } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<null>({
        name: "agents",
        start: (signal) =>
          spawnPlace<AgentsPlaceInit, null>({
            signal,
            name: "agents",
            module: agentsModule,
            init,
            carrier: "thread",
            startTimeoutMs: loadTimeoutMs,
          }),
        policy: restart,
        clock,
        onUp: async (place) => {
          await this.#up(place);
          resolve();
        },
        onDown: (exit, next) => {
          this.#link = null;
          this.#models = null;
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

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
  }

  /** Makes a model usable by requests; nothing while the agents place is down, which asks for it when it is up. */
  async attach(served: ServedModel, place: Place<ModelPlaceReady> | null): Promise<void> {
    const models = this.#models;
    if (models === null || place === null) return;
    try {
      const ticket = await place.dial();
      const { id, spec, chatTemplate, jinjaExplicit } = served;
      const message = { id, path: spec.path, chatTemplate, jinjaExplicit, ready: place.ready, ticket };
      const options = { timeoutMs: this.#options.loadTimeoutMs, transfer: ticketTransfer(ticket) };
      const table = await models.ask("attachModel", message, options);
      if (table !== null) this.#tokenTexts.set(id, new SharedTokenTexts(table));
    } catch (error) {
      // One of the two has died. Its next life attaches again; the other one must not die of it.
      if (toErrorRecord(error).code !== "peer_gone") throw error;
    }
  }

  detach(id: string, error: ErrorRecord): void {
    this.#tokenTexts.delete(id);
    this.#models?.tell("detachModel", { id, error });
  }

  /** null while the model is not attached, and for one that generates nothing. */
  tokenTexts(id: string): TokenTexts | null {
    return this.#tokenTexts.get(id) ?? null;
  }

  async #up(place: Place<null>): Promise<void> {
    const { init, system, models } = this.#options;
    const hub = new StreamHub(place.endpoint, { channel: eventChannel, window: init.streamWindow });
    this.#link = { actor: system.ref<AgentsProtocol>("agents", place.endpoint), hub };
    this.#models = system.ref<ModelsProtocol>("models", place.endpoint);
    await Promise.all([...models()].map((model) => this.attach(model.served, model.place)));
  }
}
