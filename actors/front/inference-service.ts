// Owns the main thread's side of inference: which models there are, and turning a request into a stream of events from the
// agents place. Implements Inference and ModelManagement for http/. It never sees a token.
import type { AdapterSelector, GenerateEvent, GenerateRequest } from "../../engines/generation.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { realClock } from "../../runtime/clock.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { BodyToTranslate } from "../api/body-translators.ts";
import type { EngineMetric } from "../api/engine-metric.ts";
import type { Embeddings, EmbedRequest, Inference, ModelEntry, ResolvedModel } from "../api/inference.ts";
import type { LoraAdapters } from "../api/lora-adapters.ts";
import type { ModelManagement, ModelOutcome } from "../api/model-management.ts";
import { movedWith } from "../api/sealed-content.ts";
import type { EmbedEvent, LeasedAdapter, ModelStatistics, TextStatistics } from "../messages.ts";
import { ModelManager } from "../models/model-manager.ts";
import type { RejectionCounter } from "../models/rejection-counter.ts";
import { loading, type ServedStatistics, shuttingDown } from "../models/served-model.ts";
import { engineMetrics, latencyMetrics, textMetrics } from "./engine-metrics.ts";
import { type AgentsLink, GenerationClient } from "./generation-client.ts";
import { leaseFor } from "./request-adapter.ts";
import type { ServiceOptions } from "./service-options.ts";

export type { ServedModel } from "../models/served-model.ts";
export type { ServiceOptions } from "./service-options.ts";

type ErrorEvent = Extract<GenerateEvent, { readonly type: "error" }>;

/** A request on a model that answers it, with its adapter, until it ends. */
interface Visit {
  readonly agents: AgentsLink;
  readonly adapter: LeasedAdapter | null;
  readonly refusals: RejectionCounter;
  end(): void;
}

type StartRun = (visit: Visit, run: number) => Promise<unknown>;

/** Text tasks wait for their turn, and each has a limit of its own. */
const prepareTimeoutMs = 10 * 60 * 1000;
const statisticsTimeoutMs = 2000;

interface Asked {
  readonly model: string;
  readonly client: string;
  readonly adapter: AdapterSelector | null;
}

export class InferenceService implements Inference, ModelManagement {
  readonly #options: ServiceOptions;
  readonly #system = new ActorSystem("front");
  readonly #agents: GenerationClient;
  readonly #models: ModelManager;
  #nextRun = 1;
  #isStopping = false;

  constructor(options: ServiceOptions) {
    const { agents: init, restart, loadTimeoutMs, log, clock = realClock } = options;
    this.#options = options;
    const models = () => this.#models.all.map(({ model }) => model);
    this.#agents = new GenerationClient({ init, system: this.#system, restart, loadTimeoutMs, log, clock, models });
    this.#models = new ModelManager(options, this.#system, this.#agents);
  }

  /**
   * Starts the agents place and loads the models, the default one and as many others as may be loaded. Rejects with the
   * first failure; stop() cleans up after it.
   */
  async start(): Promise<void> {
    await this.#agents.start();
    await this.#models.start();
  }

  /** Stops every place: models first, so that nothing new is generated. */
  async stop(deadlineMs: number): Promise<void> {
    this.#isStopping = true;
    await this.#models.stop(deadlineMs);
    await this.#agents.stop(deadlineMs);
    await this.#system.stop();
  }

  /** The adapters that requests may choose. */
  get lora(): LoraAdapters {
    return this.#models.lora;
  }

  /** While it stops, what is missing is no fault. */
  faults(): readonly string[] {
    return this.#isStopping ? [] : this.#agents.faults();
  }

  models(): readonly ModelEntry[] {
    return this.#models.entries();
  }

  resolveModel(requested: string | undefined): ResolvedModel {
    return this.#models.resolve(requested);
  }

  statusOf(name: string): ModelOutcome {
    const outcome = this.#models.named(name).outcome;
    if (outcome.status !== "loaded" || this.#agents.isAttached(outcome.id)) return outcome;
    return { ...outcome, error: loading(outcome.id) };
  }

  async reload(name: string): Promise<ModelOutcome> {
    return await this.#models.named(name).reload();
  }

  async unload(name: string): Promise<ModelOutcome> {
    return await this.#models.named(name).unload();
  }

  /** A model that does not answer soon (it is starting, ending, or in a long step) counts as it did when it last answered. */
  async engineMetrics(): Promise<readonly EngineMetric[]> {
    const { all } = this.#models;
    const [text] = await Promise.all([this.#textStatistics(), ...all.map(({ model }) => model.count())]);
    const totals = new Map<string, ModelStatistics>();
    for (const { id, model } of all) {
      const total = model.statistics.total();
      if (total !== null) totals.set(id, total);
    }
    return [
      ...engineMetrics([...totals.values()]),
      ...latencyMetrics(totals),
      ...(text === null ? [] : textMetrics(text)),
    ];
  }

  /** null where the agents place does not answer soon. */
  async #textStatistics(): Promise<TextStatistics | null> {
    const { link } = this.#agents;
    if (link === null) return null;
    return await link.actor.ask("textStatistics", null, { timeoutMs: statisticsTimeoutMs }).catch(() => null);
  }

  /** Asks the model how it is doing. Throws model_not_found, or that it is not loaded. */
  async statistics(name: string): Promise<ServedStatistics> {
    const { model, refusals } = this.#models.named(name);
    const { queueFull, queueTimeouts } = refusals;
    return { ...(await model.currentStatistics()), queueFull, queueTimeouts };
  }

  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared: () => void = () => {},
  ): AsyncGenerator<readonly GenerateEvent[]> {
    const start: StartRun = ({ agents, adapter }, run) => {
      const message = { run, request: this.#seeded(request), adapter };
      const options = { timeoutMs: prepareTimeoutMs, transfer: movedWith(request) };
      return agents.actor.ask("start", message, options).finally(onPrepared);
    };
    return this.#events<GenerateEvent>(request, signal, start, onPrepared);
  }

  tokenTexts(model: string): ShownTokens {
    const texts = this.#agents.tokenTexts(model);
    if (texts !== null) return texts;
    throw new ServerError("model_failed", `the engine of model "${model}" ended; the request can be retried`);
  }

  async countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number> {
    const { model, client } = request;
    const visit = await this.#visit({ model, client, adapter: null }, signal);
    try {
      const options = { timeoutMs: prepareTimeoutMs, transfer: movedWith(request) };
      const { actor } = visit.agents;
      return await this.#task(actor, signal, (run) => actor.ask("countTokens", { run, request }, options));
    } finally {
      visit.end();
    }
  }

  async embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings> {
    const start: StartRun = ({ agents, adapter }, run) => {
      const transfer = [request.inputs.values.buffer as ArrayBuffer];
      return agents.actor.ask("embed", { run, request, adapter }, { transfer });
    };
    const { model, client } = request;
    for await (const [event] of this.#events<EmbedEvent>({ model, client, adapter: null }, signal, start)) {
      if (event?.type === "error") throw fromErrorRecord(event.error);
      if (event) return event.embeddings;
    }
    throw new ServerError("cancelled", "the request was cancelled before its embeddings were made");
  }

  async translate(body: BodyToTranslate, signal: AbortSignal): Promise<unknown> {
    const { link } = this.#agents;
    if (link === null) throw fromErrorRecord(restarting);
    const { actor } = link;
    const options = { timeoutMs: prepareTimeoutMs, transfer: [body.body.buffer as ArrayBuffer] };
    return await this.#task(actor, signal, (run) => actor.ask("translate", { run, body }, options));
  }

  /** What the agents place is asked under a number, by which it is given up when the signal is aborted. */
  async #task<T>(actor: AgentsLink["actor"], signal: AbortSignal, ask: (run: number) => Promise<T>): Promise<T> {
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled before it was read");
    const run = this.#nextRun++;
    const cancel = () => actor.tell("cancelTask", { run });
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await ask(run);
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  }

  /** The events of a run on a model, which `start` asks the agents place for; `onEnd` is called when there are no more. */
  async *#events<Event extends { readonly type: string }>(
    asked: Asked,
    signal: AbortSignal,
    start: StartRun,
    onEnd: () => void = () => {},
  ): AsyncGenerator<readonly (Event | ErrorEvent)[]> {
    let visit: Visit;
    try {
      visit = await this.#visit(asked, signal);
    } catch (error) {
      onEnd();
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(error) }];
      return;
    }
    const run = this.#nextRun++;
    const reader = visit.agents.hub.reader<Event | ErrorEvent>(run);
    const cancel = () => reader.cancel();
    const refused: { error?: ErrorRecord } = {};
    signal.addEventListener("abort", cancel, { once: true });
    try {
      if (signal.aborted) return;
      start(visit, run).catch((error: unknown) => {
        refused.error = toErrorRecord(error);
        reader.cancel();
      });
      for await (const batch of reader) {
        const last = batch.at(-1);
        if (last && "error" in last) visit.refusals.note(last.error.code);
        if (last && "error" in last && this.#isStopping) yield [...batch.slice(0, -1), stopped];
        else yield batch;
      }
      if (refused.error && !signal.aborted) yield [{ type: "error", error: refused.error }];
    } catch (error) {
      yield [{ type: "error", error: toErrorRecord(error) }];
    } finally {
      signal.removeEventListener("abort", cancel);
      reader.cancel();
      visit.end();
      onEnd();
    }
  }

  /**
   * Settles when the model answers requests, which it does until the visit ends. The adapter is what was chosen when the
   * request came, however long that takes. Rejects with why the request cannot be answered.
   */
  async #visit({ model, client, adapter }: Asked, signal: AbortSignal): Promise<Visit> {
    const life = this.#models.get(model);
    const { refusals } = life;
    const lease = leaseFor(life.served, life.adapters, adapter);
    try {
      await life.enter(signal, client);
    } catch (error) {
      lease?.release();
      refusals.note(toErrorRecord(error).code);
      throw error;
    }
    const end = () => {
      life.leave();
      lease?.release();
    };
    const agents = this.#agents.link;
    if (agents !== null) return { agents, adapter: lease?.adapter ?? null, refusals, end };
    end();
    throw fromErrorRecord(restarting);
  }

  #seeded(request: GenerateRequest): GenerateRequest {
    const { defaultSeed } = this.#options;
    if (defaultSeed === null || request.sampling.seed !== null) return request;
    return { ...request, sampling: { ...request.sampling, seed: defaultSeed } };
  }
}

const restarting: ErrorRecord = {
  code: "peer_gone",
  message: "the part of the server that reads requests is being started again; try again shortly",
};

const stopped: ErrorEvent = { type: "error", error: shuttingDown };
