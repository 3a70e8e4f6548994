// Inference service: implements Inference and ModelManagement for http/ on the main thread. It waits until a request's model is
// loaded, sends the request to the generation thread and forwards the events. It does not process tokens.
import type { AdapterSelector, GenerateEvent, GenerateRequest, ResolvedRequest } from "../../engines/generation.ts";
import { checkMedia } from "../../engines/media/check-media.ts";
import { effectiveSampling, type GenerationDefaults } from "../../engines/sampling-defaults.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { StreamReader } from "../../runtime/actor/stream-ends.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { realClock } from "../../runtime/clock.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { BodyToTranslate } from "../api/body-translators.ts";
import type { CalibrationStatus } from "../api/calibration.ts";
import type { EngineMetric } from "../api/engine-metric.ts";
import type { ImageGeneration } from "../api/images/image-generation.ts";
import type {
  ConvertedTokens,
  Embeddings,
  EmbedRequest,
  Inference,
  ModelEntry,
  ResolvedModel,
  TokensRequest,
} from "../api/inference.ts";
import type { LoraAdapters } from "../api/lora-adapters.ts";
import type { ModelManagement, ModelOutcome } from "../api/model-management.ts";
import { movedWith } from "../api/sealed-content.ts";
import type { Speech } from "../api/speech/speech.ts";
import type { GenerationEvent, LeasedAdapter, ModelStatistics, TextStatistics } from "../messages.ts";
import { ModelManager } from "../models/model-manager.ts";
import type { RejectionCounter } from "../models/rejection-counter.ts";
import { loading, type ServedModel, type ServedStatistics, shuttingDown, tokenless } from "../models/served-model.ts";
import { applyCalibration, calibrationStatus, startCalibration } from "../models/weights/calibration.ts";
import { Requantizer } from "../models/weights/requantizer.ts";
import { GenerationClient, type GenerationLink } from "./generation-client.ts";
import { type LoadedRequest, MediaSources } from "./media-sources.ts";
import { engineMetrics, latencyMetrics, textMetrics } from "./metrics/engine-metrics.ts";
import { ImageService } from "./model-calls/image-service.ts";
import { RemoteTextService } from "./model-calls/remote-text-service.ts";
import { SpeechService } from "./model-calls/speech-service.ts";
import { leaseFor } from "./request-adapter.ts";
import type { ServiceOptions } from "./service-options.ts";

export type { ServedModel } from "../models/served-model.ts";
export type { ServiceOptions } from "./service-options.ts";

type ErrorEvent = Extract<GenerateEvent, { readonly type: "error" }>;

/**
 * Maximum number of generations that have not emitted an event. The limit is needed because generations are started by messages
 * without a reply, and nothing else limits their number.
 */
const maxStarting = 4096;

/** Use of a loaded model by one request. Ends with end(). */
interface Visit {
  readonly link: GenerationLink;
  /** Adapter of the request; null = the base model. */
  readonly adapter: LeasedAdapter | null;
  readonly defaults: GenerationDefaults;
  readonly rejections: RejectionCounter;
  end(): void;
}

/** A generation whose first event has not been read. */
interface Started {
  readonly reader: StreamReader<GenerationEvent>;
  /** Call at the first event. Stops counting the generation as starting, and releases its loaded media. */
  begun(): void;
}

/** Maximum time in ms of a text task, including the wait for a worker. Its CPU time has a separate limit. */
const textTimeoutMs = 10 * 60 * 1000;
/** Maximum time in ms of an embedding request. Each group of inputs has a separate limit. */
const embedTimeoutMs = 24 * 60 * 60 * 1000;
const statisticsTimeoutMs = 2000;
/** Milliseconds to wait for a model's statistics. Short, because health checks of load balancers often have a limit of one second. */
const waitingTimeoutMs = 300;

interface Asked {
  readonly model: string;
  readonly client: string;
  readonly adapter: AdapterSelector | null;
}

export class InferenceService implements Inference, ModelManagement {
  readonly #options: ServiceOptions;
  readonly #system = new ActorSystem("front");
  readonly #generation: GenerationClient;
  readonly #models: ModelManager;
  readonly #requantizer: Requantizer;
  readonly #media: MediaSources;
  readonly #images: ImageService;
  readonly #remoteText: RemoteTextService;
  readonly #speech: SpeechService;
  /** Next number for a stream or task. */
  #nextId = 1;
  /** Number of generations that have not emitted an event. */
  #starting = 0;
  #isStopping = false;

  constructor(options: ServiceOptions) {
    const { generationPlace: init, restart, loadTimeoutMs, log, clock = realClock } = options;
    this.#options = options;
    const models = () => this.#models.all.map(({ model }) => model);
    this.#generation = new GenerationClient({ init, system: this.#system, restart, loadTimeoutMs, log, clock, models });
    this.#models = new ModelManager(options, this.#system, this.#generation);
    this.#requantizer = new Requantizer(options);
    this.#media = new MediaSources({ readFile: options.readFile ?? null });
    const { speechLimits: limits, defaultModelId } = options;
    this.#remoteText = new RemoteTextService(this.#models, this.#system, () => this.#isStopping);
    this.#images = new ImageService({ models: this.#models, system: this.#system, defaultModelId });
    this.#speech = new SpeechService({ models: this.#models, system: this.#system, limits, defaultModelId, log });
  }

  /**
   * Starts the generation thread and loads models: the default model, and as many others as the limit allows. Rejects with the
   * first failure; the caller must then call stop() to clean up.
   */
  async start(): Promise<void> {
    await this.#generation.start();
    await this.#models.start();
  }

  /** Stops all threads and processes. The models are stopped first, so that they generate nothing more. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    await this.#requantizer.stop();
    await this.#models.stop(deadlineMs);
    await this.#generation.stop(deadlineMs);
    await this.#system.stop();
  }

  /** Loads, lists and unloads the adapters that requests can select. */
  get lora(): LoraAdapters {
    return this.#models.lora;
  }

  /** Generates images from text. */
  get imageGeneration(): ImageGeneration {
    return this.#images;
  }

  /** Converts text to speech, and transcribes audio. */
  get speech(): Speech {
    return this.#speech;
  }

  /** Returns the reasons why the server cannot serve requests now. Empty while the service is stopping. */
  faults(): readonly string[] {
    return this.#isStopping ? [] : this.#generation.faults();
  }

  models(): readonly ModelEntry[] {
    return this.#models.entries();
  }

  resolveModel(requested: string | undefined): ResolvedModel {
    return this.#models.resolve(requested);
  }

  /** Adds a model. It is loaded when a request names it. Throws conflict if its id is taken. */
  addModel(served: ServedModel): void {
    this.#models.add(served);
  }

  /** Removes a model after its requests have ended. Throws model_not_found. */
  async removeModel(id: string): Promise<void> {
    await this.#models.remove(id);
  }

  async waiting(name: string): Promise<number> {
    const { model } = this.#models.named(name);
    await model.currentStatistics(waitingTimeoutMs).catch(() => undefined);
    const { waiting = 0, preempted = 0 } = model.statistics.total() ?? {};
    return waiting + preempted;
  }

  statusOf(name: string): ModelOutcome {
    const outcome = this.#models.named(name).outcome;
    const isAttachable = tokenless(this.#models.get(outcome.id).served) === null;
    if (outcome.status !== "loaded" || !isAttachable || this.#generation.isAttached(outcome.id)) return outcome;
    return { ...outcome, error: loading(outcome.id) };
  }

  async reload(name: string): Promise<ModelOutcome> {
    return await this.#models.named(name).reload();
  }

  async unload(name: string): Promise<ModelOutcome> {
    return await this.#models.named(name).unload();
  }

  requantize(name: string, level: string): string {
    return this.#requantizer.begin(this.#models.named(name), level);
  }

  async startCalibration(name: string): Promise<CalibrationStatus> {
    return await startCalibration(this.#models.named(name), this.#requantizer);
  }

  async calibrationStatus(name: string): Promise<CalibrationStatus> {
    return await calibrationStatus(this.#models.named(name));
  }

  async applyCalibration(name: string, saveAs: string | null): Promise<CalibrationStatus> {
    return await applyCalibration(this.#models.named(name), this.#requantizer, saveAs);
  }

  /**
   * Returns the metrics of all models. If a model does not respond soon (while it starts, ends or runs a long step), its last
   * known statistics are used.
   */
  async engineMetrics(): Promise<readonly EngineMetric[]> {
    const { all } = this.#models;
    const [text] = await Promise.all([this.#textStatistics(), ...all.map(({ model }) => model.count())]);
    const removed = this.#models.removed.total();
    const totals = new Map<string, ModelStatistics>();
    for (const { id, model } of all) {
      const total = model.statistics.total();
      if (total !== null) totals.set(id, total);
    }
    return [
      ...engineMetrics([...totals.values(), ...(removed === null ? [] : [removed])]),
      ...latencyMetrics(totals),
      ...(text === null ? [] : textMetrics(text)),
    ];
  }

  /** Returns the counts of text tasks; null if the generation thread does not respond soon. */
  async #textStatistics(): Promise<TextStatistics | null> {
    const { link } = this.#generation;
    if (link === null) return null;
    return await link.actor.ask("textStatistics", null, { timeoutMs: statisticsTimeoutMs }).catch(() => null);
  }

  /** Returns the model's current statistics. Throws model_not_found, or an error if the model is not loaded. */
  async statistics(name: string): Promise<ServedStatistics> {
    const { model, refusals } = this.#models.named(name);
    const { queueFull, queueTimeouts } = refusals;
    return { ...(await model.currentStatistics()), queueFull, queueTimeouts };
  }

  async *generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared: () => void = () => {},
  ): AsyncGenerator<readonly GenerateEvent[]> {
    if (this.#remoteText.serves(request.model)) {
      yield* this.#remoteText.generate(request, signal, onPrepared);
      return;
    }
    let visit: Visit | null = null;
    let started: Started | null = null;
    const cancel = () => started?.reader.cancel();
    signal.addEventListener("abort", cancel, { once: true });
    try {
      visit = await this.#visit(request, signal);
      started = await this.#begin(visit, request, signal);
      if (signal.aborted) cancel();
      for await (const batch of started.reader) {
        started.begun();
        if (batch[0]?.type === "prepared") onPrepared();
        const events = eventsOf(batch);
        const last = events.at(-1);
        if (last?.type === "error") yield [...events.slice(0, -1), this.#failure(visit, last.error)];
        else if (events.length > 0) yield events;
      }
    } catch (error) {
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(error) }];
    } finally {
      signal.removeEventListener("abort", cancel);
      started?.begun();
      visit?.end();
      onPrepared();
    }
  }

  /**
   * Loads the media of a request and starts its generation. A separate method, because generate() would keep a reference to the
   * loaded media until the generation ends.
   */
  async #begin(visit: Visit, request: GenerateRequest, signal: AbortSignal): Promise<Started> {
    const loaded = await this.#withMedia(request, signal);
    try {
      if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled while its images were loaded");
      if (this.#starting >= maxStarting) throw tooManyStarting();
      const reader = this.#start(visit, loaded.request);
      return { reader, begun: this.#countStarting(loaded.release) };
    } catch (error) {
      loaded.release();
      throw error;
    }
  }

  /** Counts a generation as starting until the returned function is called. That function also calls `onBegun`. */
  #countStarting(onBegun: () => void): () => void {
    let isStarting = true;
    this.#starting++;
    return () => {
      if (!isStarting) return;
      isStarting = false;
      this.#starting--;
      onBegun();
    };
  }

  /** Loads the media of a request. Throws `unsupported` or `invalid_value` if the model does not accept them. */
  async #withMedia(request: GenerateRequest, signal: AbortSignal): Promise<LoadedRequest> {
    const { media = [] } = request;
    const [first] = media;
    if (first === undefined) return { request, release: () => {} };
    const { served } = this.#models.get(request.model);
    checkMedia(media, served.spec, served.id);
    return await this.#media.load(request, served.spec.images?.maxFrames ?? 0, signal);
  }

  /** Starts a generation. The first event is `prepared`, or `error` if the preparation fails. */
  #start({ link, adapter, defaults }: Visit, request: GenerateRequest): StreamReader<GenerationEvent> {
    const stream = this.#nextId++;
    const reader = link.hub.reader<GenerationEvent>(stream);
    link.actor.tell("start", { stream, request: this.#resolved(request, defaults), adapter }, movedWith(request));
    return reader;
  }

  /** Converts an error to an event and counts it as a rejection. While the service is stopping, every error becomes `draining`. */
  #failure({ rejections }: Visit, error: ErrorRecord): ErrorEvent {
    rejections.note(error.code);
    return { type: "error", error: this.#isStopping ? shuttingDown : error };
  }

  tokenTexts(model: string): ShownTokens {
    const texts = this.#generation.tokenTexts(model);
    if (texts !== null) return texts;
    throw new ServerError("model_failed", `the engine of model "${model}" ended; the request can be retried`);
  }

  async countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number> {
    const loaded = await this.#withMedia(request, signal);
    try {
      return await this.#onModel(request, signal, ({ link }, task) => {
        const options = { timeoutMs: textTimeoutMs, transfer: movedWith(request) };
        return link.actor.ask("countTokens", { task, request: loaded.request }, options);
      });
    } finally {
      loaded.release();
    }
  }

  async convertTokens(request: TokensRequest, signal: AbortSignal): Promise<ConvertedTokens> {
    return await this.#onModel(request, signal, ({ link }, task) =>
      link.actor.ask("convertTokens", { task, request }, { timeoutMs: textTimeoutMs }),
    );
  }

  async embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings> {
    return await this.#onModel(request, signal, ({ link, adapter }, task) => {
      const options = { timeoutMs: embedTimeoutMs, transfer: [request.inputs.values.buffer as ArrayBuffer] };
      return link.actor.ask("embed", { task, request, adapter }, options);
    });
  }

  async translate(body: BodyToTranslate, signal: AbortSignal): Promise<unknown> {
    const { link } = this.#generation;
    if (link === null) throw fromErrorRecord(restarting);
    const { actor } = link;
    const options = { timeoutMs: textTimeoutMs, transfer: [body.body.buffer as ArrayBuffer] };
    return await this.#task(actor, signal, (task) => actor.ask("translate", { task, body }, options));
  }

  /** Runs a task on a model. If the model has a fixed adapter, the task uses that adapter. */
  async #onModel<T>(
    { model, client }: Pick<Asked, "model" | "client">,
    signal: AbortSignal,
    ask: (visit: Visit, task: number) => Promise<T>,
  ): Promise<T> {
    const visit = await this.#visit({ model, client, adapter: null }, signal);
    try {
      return await this.#task(visit.link.actor, signal, (task) => ask(visit, task));
    } catch (error) {
      if (signal.aborted) throw error;
      throw fromErrorRecord(this.#failure(visit, toErrorRecord(error)).error);
    } finally {
      visit.end();
    }
  }

  /** Sends a task with a new number to the generation thread. If the signal is aborted, the task is cancelled. */
  async #task<T>(actor: GenerationLink["actor"], signal: AbortSignal, ask: (task: number) => Promise<T>): Promise<T> {
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled before it was read");
    const task = this.#nextId++;
    const cancel = () => actor.tell("cancelTask", { task });
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await ask(task);
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  }

  /**
   * Waits until the model is loaded. The model stays loaded until `end` of the returned visit is called. The adapter is selected
   * when the request arrives, not when the model is loaded. Rejects with the error that prevents the request.
   */
  async #visit({ model, client, adapter }: Asked, signal: AbortSignal): Promise<Visit> {
    const life = this.#models.get(model);
    const { refusals: rejections } = life;
    const refusal = tokenless(life.served);
    if (refusal !== null) throw fromErrorRecord(refusal);
    const lease = leaseFor(life.served, life.adapters, adapter);
    try {
      await life.enter(signal, client);
    } catch (error) {
      lease?.release();
      rejections.note(toErrorRecord(error).code);
      throw error;
    }
    const end = () => {
      life.gate.leave();
      lease?.release();
    };
    const { link } = this.#generation;
    if (link !== null)
      return { link, adapter: lease?.adapter ?? null, defaults: life.served.defaults, rejections, end };
    end();
    throw fromErrorRecord(restarting);
  }

  /**
   * Applies the model's and the server's default parameters to a request. This is the only place where defaults are applied, for
   * all APIs.
   */
  #resolved(request: GenerateRequest, defaults: GenerationDefaults): ResolvedRequest {
    const sampling = effectiveSampling(request.sampling, defaults);
    return {
      ...request,
      sampling: { ...sampling, seed: sampling.seed ?? this.#options.defaultSeed },
      outputLimit: request.maxTokens ?? (defaults.maxTokens && Math.max(defaults.maxTokens, request.minTokens)),
    };
  }
}

const restarting: ErrorRecord = {
  code: "peer_gone",
  message: "the thread that handles the texts of all models is being restarted; try again shortly",
};

/** Returns the events of a batch without `prepared`, which is the first item of a stream. */
function eventsOf(batch: readonly GenerationEvent[]): readonly GenerateEvent[] {
  return (batch[0]?.type === "prepared" ? batch.slice(1) : batch) as readonly GenerateEvent[];
}

function tooManyStarting(): ServerError {
  return new ServerError("mailbox_full", `${maxStarting} requests wait for the generation place; try again shortly`);
}
