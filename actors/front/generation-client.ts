// Generation client: the main thread's client of the generation thread. Starts the thread, restarts it whenever it ends, and
// attaches the loaded models to it.
import { SharedTokenTexts, type TokenTexts } from "../../engines/text/tokenizer/token-texts.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import type { Clock } from "../../runtime/clock.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { ticketTransfer } from "../../runtime/thread/dial.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { ModelFileFacts } from "../api/inference.ts";
import {
  eventChannel,
  type GenerationPlaceInit,
  type GenerationPlaceReport,
  type GenerationProtocol,
  type ModelFiles,
  type ModelPlaceReady,
  type ModelsProtocol,
} from "../messages.ts";
import type { ModelUsers } from "../models/model-process.ts";
import { failed, type ServedModel, tokenless } from "../models/served-model.ts";
import { generationModule } from "../placement.ts";

/** Milliseconds without a reply after which the thread counts as hung. It replies fast, because it does not process client texts itself. */
const answersWithinMs = 10_000;
const heapMiB = 2048;

export interface GenerationClientOptions {
  readonly init: GenerationPlaceInit;
  readonly system: ActorSystem;
  readonly clock: Clock;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly log: Logger;
  /** Returns all models. The loaded ones are attached to each new generation thread. */
  readonly models: () => Iterable<AttachableModel>;
}

interface AttachableModel {
  readonly served: ServedModel;
  /** The model's worker; null while the model is not loaded. */
  readonly place: Place<ModelPlaceReady> | null;
  /** Receives the facts from the model's file whenever the model has been attached to a new generation thread. */
  setFileFacts(facts: ModelFileFacts): void;
}

export interface GenerationLink {
  readonly actor: Ref<GenerationProtocol>;
  readonly hub: StreamHub;
}

export class GenerationClient implements ModelUsers {
  readonly #options: GenerationClientOptions;
  #supervisor: Supervisor | null = null;
  #link: GenerationLink | null = null;
  #models: Ref<ModelsProtocol> | null = null;
  #wasUp = false;
  #textWorkersAreDown = false;
  /** What text tasks need from the model files, kept for a restarted generation thread, because the files may have been deleted by then. */
  readonly #files = new WeakMap<Place<ModelPlaceReady>, ModelFiles>();
  /** Workers of the attached models, by model id. */
  readonly #attached = new Map<string, Place<ModelPlaceReady>>();
  /** Texts of the tokens, by model id. */
  readonly #tokenTexts = new Map<string, TokenTexts>();

  constructor(options: GenerationClientOptions) {
    this.#options = options;
  }

  /** The connection to the generation thread; null while the thread is not running. */
  get link(): GenerationLink | null {
    return this.#link;
  }

  /** Returns the reasons why the server cannot serve requests now. */
  faults(): readonly string[] {
    if (this.#link === null) return ["the thread that handles the texts of all models is not running"];
    return this.#textWorkersAreDown ? ["the threads that read requests do not start"] : [];
  }

  async start(): Promise<void> {
    const { init, restart, clock, loadTimeoutMs, log } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<null>({
        name: "generation",
        start: (signal) =>
          spawnPlace<GenerationPlaceInit, null>({
            signal,
            name: "generation",
            module: generationModule,
            init,
            kind: "thread",
            startTimeoutMs: loadTimeoutMs,
            answersWithinMs,
            heapMiB,
            onProgress: (told) => this.#told(told as GenerationPlaceReport),
          }).catch((error: unknown) => {
            // After the first start, the error becomes peer_gone, which is retried: a later restart may succeed, for example if
            // the system could not create a thread.
            throw this.#wasUp ? new ServerError("peer_gone", toErrorRecord(error).message) : error;
          }),
        // Restarts are not limited, because no request can be served without the thread.
        policy: { ...restart, maxRestarts: Number.POSITIVE_INFINITY },
        clock,
        onUp: async (place) => {
          this.#wasUp = true;
          await this.#up(place);
          resolve();
        },
        onDown: (exit, next) => {
          this.#link = null;
          this.#models = null;
          this.#textWorkersAreDown = false;
          this.#attached.clear();
          if (exit.orderly) return;
          log.error(
            { reason: exit.reason, retryInMs: next?.retryInMs },
            "the generation place ended; its requests failed",
          );
        },
        onEscalate: (error) => {
          log.error({ err: error }, "the generation place does not stay up; every request is refused until a restart");
          reject(error);
        },
      });
    });
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
  }

  /**
   * Attaches a model to the generation thread, so that requests can use it. Does nothing for a model that does not generate
   * tokens, and while the thread is down, because a restarted thread gets all models. Retries after `peer_gone` until the model is
   * attached, or the thread or the model's worker has ended. Resolves to the facts from the model's file, or to null if they have
   * not been read. Other errors are thrown.
   */
  async attach(served: ServedModel, place: Place<ModelPlaceReady> | null): Promise<ModelFileFacts | null> {
    const models = this.#models;
    if (models === null || place === null || tokenless(served) !== null) return null;
    const { restart, clock, log } = this.#options;
    let hasEnded = false;
    void place.exit.then(() => {
      hasEnded = true;
    });
    for (let retryInMs = restart.minBackoffMs; ; retryInMs = Math.min(2 * retryInMs, restart.maxBackoffMs)) {
      try {
        return await this.#attachTo(models, served, place);
      } catch (error) {
        if (toErrorRecord(error).code !== "peer_gone") throw error;
        // Not an error: the model is attached again when the ended thread or worker is restarted.
        if (hasEnded || this.#models !== models) return this.#files.get(place)?.facts ?? null;
        log.warn({ model: served.id, err: error, retryInMs }, "a model could not be attached to the generation place");
        await Promise.race([new Promise<void>((resolve) => clock.setTimeout(resolve, retryInMs)), place.exit]);
      }
    }
  }

  async #attachTo(
    models: Ref<ModelsProtocol>,
    served: ServedModel,
    place: Place<ModelPlaceReady>,
  ): Promise<ModelFileFacts> {
    const ticket = await place.dial();
    const { id, spec, chatTemplate, jinjaExplicit, prompts } = served;
    const files = this.#files.get(place) ?? null;
    const { ready } = place;
    const given = prompts && { prompts };
    const message = { id, path: spec.path, chatTemplate, jinjaExplicit, ...given, ready, ticket, files };
    const options = { timeoutMs: this.#options.loadTimeoutMs, transfer: ticketTransfer(ticket) };
    const read = await models.ask("attachModel", message, options);
    this.#files.set(place, read);
    this.#tokenTexts.set(id, new SharedTokenTexts(read.tokenTexts));
    if (this.#models === models) this.#attached.set(id, place);
    return read.facts;
  }

  #told(progress: GenerationPlaceReport): void {
    const { log } = this.#options;
    if ("endedTask" in progress) {
      log.warn(progress.endedTask, "a request was refused: reading it exceeded a limit or crashed its thread");
    } else {
      this.#textWorkersAreDown = progress.textWorkersAreDown;
      if (progress.textWorkersAreDown) log.error("the threads that read requests do not start; they are tried again");
      else log.info("the threads that read requests start again");
    }
  }

  /** Detaches a model from the generation thread. Does nothing if another worker of the model is attached. */
  detach(id: string, place: Place<ModelPlaceReady> | null, error: ErrorRecord): void {
    const attached = this.#attached.get(id);
    if (attached !== undefined && attached !== place) return;
    this.#attached.delete(id);
    this.#tokenTexts.delete(id);
    this.#models?.tell("detachModel", { id, error });
  }

  /** Returns whether the model is attached to the generation thread. */
  isAttached(id: string): boolean {
    return this.#attached.has(id);
  }

  /** Returns the texts of the model's tokens; null while the model is not attached. */
  tokenTexts(id: string): TokenTexts | null {
    return this.#tokenTexts.get(id) ?? null;
  }

  async #up(place: Place<null>): Promise<void> {
    const { init, system, models } = this.#options;
    const hub = new StreamHub(place.endpoint, { channel: eventChannel, window: init.streamWindow });
    this.#link = { actor: system.ref<GenerationProtocol>("generation", place.endpoint), hub };
    this.#models = system.ref<ModelsProtocol>("models", place.endpoint);
    await Promise.all([...models()].map((model) => this.#attachAgain(model)));
  }

  /** Attaches a model. Retries as long as the model's worker and the generation thread are running. A failure affects only this model. */
  async #attachAgain(model: AttachableModel): Promise<void> {
    const { restart, clock, log } = this.#options;
    const models = this.#models;
    const { served, place } = model;
    try {
      const facts = await this.attach(served, place);
      if (facts !== null) model.setFileFacts(facts);
    } catch (error) {
      const retryInMs = restart.maxBackoffMs;
      log.error(
        { model: served.id, err: error, retryInMs },
        "a model cannot be attached to the generation place again",
      );
      this.detach(served.id, place, failed(served.id, error));
      clock.setTimeout(() => {
        if (this.#models === models && model.place === place) void this.#attachAgain(model);
      }, retryInMs);
    }
  }
}
