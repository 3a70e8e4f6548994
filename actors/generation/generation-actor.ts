// Generation actor: implements the actors `generation` and `models` of the generation thread. It keeps the attached models,
// admits requests, and passes each token from a model to its generation. Client texts are processed by text tasks, not by this
// actor.

import type { Pooling } from "../../engines/engine.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import { SharedTokenTexts, type TokenTexts } from "../../engines/text/tokenizer/token-texts.ts";
import type { Behaviour, MessageOf } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../runtime/actor/moved.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { StreamHub } from "../../runtime/actor/stream.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { Endpoint, PeerExit } from "../../runtime/endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import { openEndpoint } from "../../runtime/thread/dial.ts";
import type { ConvertedTokens, Embeddings, EmbedRequest } from "../api/inference.ts";
import {
  type AttachedModel,
  type GenerationEvent,
  type GenerationProtocol,
  type ModelFiles,
  type ModelPlaceReady,
  type ModelProtocol,
  type ModelsProtocol,
  type TextStatistics,
  type TokenFrame,
  tokenChannel,
} from "../messages.ts";
import type { TextTasks } from "../text-tasks/text-tasks.ts";
import { deliverFrame } from "./deliver-frame.ts";
import { Embedding } from "./embedding.ts";
import { EventStream } from "./event-stream.ts";
import { Generation, type GenerationOptions, type GenerationResult, type SequenceSink } from "./generation.ts";
import { GenerationQueue, type QueuePlaces } from "./generation-queue.ts";
import { type HeldMedia, holdMedia } from "./request-media.ts";

export interface GenerationActorOptions {
  readonly hub: StreamHub;
  readonly system: ActorSystem;
  readonly clock: Clock;
  readonly tasks: TextTasks;
}

/** An attached model. Text workers hold its vocabulary and template; its own thread or process runs its sequences. */
interface LinkedModel {
  /** Key that identifies the model in text tasks. */
  readonly textKey: string;
  readonly texts: TokenTexts;
  readonly endpoint: Endpoint;
  readonly actor: Ref<ModelProtocol>;
  /** Receivers of tokens, by sequence id. */
  readonly sequences: Map<number, SequenceSink>;
  readonly ready: ModelPlaceReady;
  readonly queue: GenerationQueue;
  /** Abort controllers of the requests that use the model. */
  readonly live: Set<AbortController>;
}

export class GenerationActor implements Behaviour<GenerationProtocol>, Behaviour<ModelsProtocol> {
  readonly #options: GenerationActorOptions;
  readonly #models = new Map<string, LinkedModel>();
  /** Reason why a detached model cannot be used, by model id. */
  readonly #detached = new Map<string, ErrorRecord>();
  /** Abort controllers of the tasks that cancelTask can cancel, by task number. */
  readonly #tasks = new Map<number, AbortController>();
  #nextSequence = 1;

  constructor(options: GenerationActorOptions) {
    this.#options = options;
  }

  async attachModel(message: AttachedModel): Promise<ModelFiles> {
    const { tasks, system, clock } = this.#options;
    const { id, ready } = message;
    const files = message.files ?? (await tasks.read(message));
    const endpoint = await openEndpoint(message.ticket);
    const { head, template, templateCapabilities } = files;
    const prompts = message.prompts && { prompts: message.prompts };
    const textKey = await tasks.open({ id, ready, head, template, templateCapabilities, ...prompts }).catch((error) => {
      endpoint.close();
      throw error;
    });
    const actor = system.ref<ModelProtocol>("model", endpoint);
    const linked: LinkedModel = {
      textKey,
      texts: new SharedTokenTexts(files.tokenTexts),
      endpoint,
      actor,
      sequences: new Map(),
      ready,
      queue: new GenerationQueue({ slots: ready.capacity.maxSequences, maxQueue: ready.maxQueue, clock }),
      live: new Set(),
    };
    endpoint.receive(tokenChannel, (frame: TokenFrame) => deliverFrame(frame, linked.sequences));
    this.#forget(id);
    this.#models.set(id, linked);
    this.#detached.delete(id);
    void endpoint.exit.then((exit) => this.#lost(id, linked, exit));
    return files;
  }

  detachModel({ id, error }: { readonly id: string; readonly error: ErrorRecord }): void {
    this.#detached.set(id, error);
    this.#forget(id);
  }

  #forget(id: string): void {
    const linked = this.#models.get(id);
    if (linked === undefined) return;
    this.#models.delete(id);
    linked.endpoint.close();
    this.#options.tasks.close(linked.textKey);
  }

  /** Starts a generation. Every failure is sent as the last event of the stream. */
  start({ stream: id, request, adapter }: MessageOf<GenerationProtocol, "start">): void {
    const stop = new AbortController();
    const holder: { generation?: Generation } = {};
    const stream = new EventStream({
      open: (hooks) => this.#options.hub.writer<GenerationEvent>(id, hooks),
      onCancel: () => stop.abort(new ServerError("cancelled", "the reader of the events has left")),
      onDrain: () => holder.generation?.resume(),
    });
    void stream.endWith(this.#run({ request, adapter }, stop, stream, holder));
  }

  /** Runs a generation. Not async, because an async function would keep the request's media alive until the generation ends. */
  #run(
    asked: Pick<GenerationOptions, "request" | "adapter">,
    stop: AbortController,
    stream: EventStream,
    holder: { generation?: Generation },
  ): Promise<GenerationResult> {
    try {
      const { model: id, client, candidates } = asked.request;
      const model = this.#generating(id);
      const places = model.queue.enter(client, candidates);
      holder.generation = this.#generation(model, places, stop.signal, stream, asked);
      return whileLive(model, stop, holder.generation.run()).finally(() => places.close());
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Creates a generation whose events are written to `stream`. */
  #generation(
    model: LinkedModel,
    places: QueuePlaces,
    signal: AbortSignal,
    stream: EventStream,
    { request: given, adapter }: Pick<GenerationOptions, "request" | "adapter">,
  ): Generation {
    const { tasks } = this.#options;
    // The generation's request contains no media, so that they can be freed once they are prepared.
    const { media, ...request } = given;
    let sources = media;
    return new Generation({
      request,
      adapter,
      model: {
        texts: model.texts,
        prepare: (request, media, signal) => tasks.prepare(model.textKey, request, signal, media),
        holdMedia: (signal) => {
          const media = sources;
          sources = undefined;
          return this.#holdMedia(model, { ...request, ...(media && { media }) }, signal);
        },
        check: (checks, text, call) => tasks.check(checks, text, call, request.client),
        actor: model.actor,
        open: (sink) => this.#openSequence(model, sink),
        places,
        close: (id, tokenCount, hasBegun) => {
          model.sequences.delete(id);
          places.ended(tokenCount, hasBegun);
        },
      },
      signal,
      onPrepared: () => stream.prepared(),
      emit: (event) => stream.write(event),
    });
  }

  countTokens({ task, request }: MessageOf<GenerationProtocol, "countTokens">): DeferredReply<number> {
    const model = this.#generating(request.model);
    return this.#task(task, async ({ signal }) => {
      const held = await this.#holdMedia(model, request, signal);
      held?.release();
      return await this.#options.tasks.countTokens(model.textKey, request, signal, held?.prepared);
    });
  }

  #holdMedia({ actor, ready }: LinkedModel, request: GenerateRequest, signal: AbortSignal): Promise<HeldMedia | null> {
    return holdMedia(request, { actor, ready, hold: this.#nextId() }, signal);
  }

  convertTokens({ task, request }: MessageOf<GenerationProtocol, "convertTokens">): DeferredReply<ConvertedTokens> {
    const { textKey } = this.#modelFor(request.model);
    return this.#task(task, ({ signal }) => this.#options.tasks.convertTokens(textKey, request, signal));
  }

  textStatistics(): TextStatistics {
    return this.#options.tasks.statistics;
  }

  translate({ task, body }: MessageOf<GenerationProtocol, "translate">): DeferredReply<Moved<unknown>> {
    return this.#task(task, async ({ signal }) => {
      const { value, movable } = await this.#options.tasks.translate(body, signal);
      return new Moved(value, movable);
    });
  }

  embed({ task, request, adapter }: MessageOf<GenerationProtocol, "embed">): DeferredReply<Moved<Embeddings>> {
    const { query, inputType } = request;
    const model = query === undefined ? this.#embedding(request) : this.#scoring(request.model);
    const { textKey, actor } = model;
    const { capacity, capabilities, maxQueue } = model.ready;
    const { truncateInputs: truncates, client } = request;
    const places = model.queue.enter(client, 1);
    return this.#task(task, async (stop) => {
      const embedding = new Embedding({
        request,
        adapter,
        model: {
          tokenize: (inputs, signal, role) => {
            // A model with a vector per token encodes the query and the inputs separately.
            const pair = role === undefined ? query : undefined;
            const options = { query: pair, inputType, role, truncates, client, signal };
            return this.#options.tasks.tokenize(textKey, inputs, options);
          },
          actor,
          capacity,
          pooling: capabilities.pooling,
          pooledLength: capabilities.pooledLength,
          maxQueue,
          nextId: () => this.#nextId(),
        },
        signal: stop.signal,
      });
      const embeddings = await whileLive(model, stop, embedding.run()).finally(() => places.close());
      return new Moved(
        embeddings,
        embeddings.vectors.map(({ buffer }) => buffer as ArrayBuffer),
      );
    });
  }

  cancelTask({ task }: MessageOf<GenerationProtocol, "cancelTask">): void {
    this.#tasks.get(task)?.abort(new ServerError("cancelled", "the request was cancelled"));
  }

  #task<T>(id: number, start: (stop: AbortController) => Promise<T>): DeferredReply<T> {
    const stop = new AbortController();
    this.#tasks.set(id, stop);
    return new DeferredReply(start(stop).finally(() => this.#tasks.delete(id)));
  }

  /** Returns a model that generates text. Throws if the model cannot be used or does not generate text. */
  #generating(id: string): LinkedModel {
    const model = this.#modelFor(id);
    if (model.ready.capabilities.generates) return model;
    throw generatesNothing(id, model.ready.capabilities.pooling);
  }

  /** Returns an embedding model. Throws if the model cannot be used or does not compute embeddings. */
  #embedding({ model: id, takesTokenVectors = false }: EmbedRequest): LinkedModel {
    const model = this.#modelFor(id);
    const { pooling } = model.ready.capabilities;
    if (pooling === null || pooling === "rank") throw embedsNothing(id, pooling);
    if (pooling === "tokens" && !takesTokenVectors) throw embedsTokens(id);
    return model;
  }

  /** Returns a model that scores texts. Throws if the model cannot be used or does not score. */
  #scoring(id: string): LinkedModel {
    const model = this.#modelFor(id);
    const { pooling } = model.ready.capabilities;
    if (pooling !== "rank" && pooling !== "tokens") throw scoresNothing(id);
    return model;
  }

  /** Returns an attached model. Throws the reason if the model cannot be used. */
  #modelFor(id: string): LinkedModel {
    const model = this.#models.get(id);
    if (!model) throw fromErrorRecord(this.#unavailable(id));
    return model;
  }

  #openSequence(model: LinkedModel, sink: SequenceSink): number {
    const id = this.#nextId();
    model.sequences.set(id, sink);
    return id;
  }

  #nextId(): number {
    const id = this.#nextSequence;
    this.#nextSequence = id === maxSequenceId ? 1 : id + 1;
    return id;
  }

  #lost(id: string, linked: LinkedModel, exit: PeerExit): void {
    if (this.#models.get(id) === linked) this.#forget(id);
    const message = `the engine of model "${id}" ended (${exit.reason}); the request can be retried`;
    for (const stop of [...linked.live]) stop.abort(new ServerError("model_failed", message));
  }

  #unavailable(id: string): ErrorRecord {
    return (
      this.#detached.get(id) ?? { code: "model_loading", message: `model "${id}" is not loaded yet; try again shortly` }
    );
  }
}

const maxSequenceId = 0x7fff_ffff;

/** Resolves with the result of a request. Aborts the request if the model is detached before the request has settled. */
async function whileLive<T>({ live }: LinkedModel, stop: AbortController, request: Promise<T>): Promise<T> {
  live.add(stop);
  try {
    return await request;
  } finally {
    live.delete(stop);
  }
}

function generatesNothing(id: string, pooling: Pooling | null): ServerError {
  const message =
    pooling === "rank"
      ? `model "${id}" scores texts and writes none; send it to POST /v1/rerank, or choose another model`
      : `model "${id}" makes embeddings and no text; send it to POST /v1/embeddings`;
  return new ServerError("unsupported", message, { param: "model" });
}

function embedsNothing(id: string, pooling: Pooling | null): ServerError {
  const what = pooling === "rank" ? "scores texts, and a score is no embedding" : "has no embeddings";
  return new ServerError("unsupported", `model "${id}" ${what}; choose another model`, { param: "model" });
}

function embedsTokens(id: string): ServerError {
  const message = `model "${id}" has a vector for each token, which only POST /v1/embeddings returns; choose another model`;
  return new ServerError("unsupported", message, { param: "model" });
}

function scoresNothing(id: string): ServerError {
  const advice = "name a reranker, for example a GGUF file of bge-reranker-v2-m3 or Qwen3-Reranker, or a ColBERT model";
  return new ServerError("unsupported", `model "${id}" does not score documents; ${advice}`, { param: "model" });
}
