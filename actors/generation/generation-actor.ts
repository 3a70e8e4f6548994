// The agents and the models actor: which models can be used, and the runs in flight on them. It routes each token row to its
// run. One run is one request: see run.ts. Text that a client has written is processed by text tasks, not on this thread.

import type { Capabilities, Capacity, Pooling } from "../../engines/engine.ts";
import type { GenerateEvent } from "../../engines/generation.ts";
import { SharedTokenTexts, type TokenTexts } from "../../engines/text/tokenizer/token-texts.ts";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { Moved } from "../../runtime/actor/moved.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { StreamHub } from "../../runtime/actor/stream.ts";
import type { StreamWriter } from "../../runtime/actor/stream-ends.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { Endpoint, PeerExit } from "../../runtime/endpoint/endpoint.ts";
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { openEndpoint } from "../../runtime/thread/dial.ts";
import {
  type AttachedModel,
  type EmbedEvent,
  type GenerationProtocol,
  type ModelFiles,
  type ModelProtocol,
  type ModelsProtocol,
  rowHasLogprobs,
  rowInts,
  type TextStatistics,
  type TokenFrame,
  tokenChannel,
} from "../messages.ts";
import type { TextTasks } from "../text-tasks/text-tasks.ts";
import { Embedding } from "./embedding.ts";
import { Generation, type SequenceSink } from "./generation.ts";
import { GenerationQueue } from "./generation-queue.ts";

export interface AgentLoopOptions {
  readonly hub: StreamHub;
  readonly system: ActorSystem;
  readonly clock: Clock;
  readonly stalledReaderMs: number;
  readonly tasks: TextTasks;
}

/** A model that runs can use: text workers have its vocabulary and template, its own place has its sequences. */
interface LinkedModel {
  /** By which text tasks know it. */
  readonly textKey: string;
  readonly texts: TokenTexts;
  readonly endpoint: Endpoint;
  readonly actor: Ref<ModelProtocol>;
  /** Live sequences by id. */
  readonly sequences: Map<number, SequenceSink>;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Most sequences without a slot. */
  readonly maxQueue: number;
  readonly queue: GenerationQueue;
  readonly runs: Set<Generation | Embedding>;
}

export class GenerationActor implements Behaviour<GenerationProtocol>, Behaviour<ModelsProtocol> {
  readonly #options: AgentLoopOptions;
  readonly #models = new Map<string, LinkedModel>();
  /** Why a model cannot be used now. */
  readonly #detached = new Map<string, ErrorRecord>();
  /** What can be given up, by its number. */
  readonly #tasks = new Map<number, AbortController>();
  #nextSequence = 1;

  constructor(options: AgentLoopOptions) {
    this.#options = options;
  }

  async attachModel(message: AttachedModel): Promise<ModelFiles> {
    const { tasks, system, clock } = this.#options;
    const { id, ready } = message;
    const { capacity, maxQueue } = ready;
    const files = message.files ?? (await tasks.read(message));
    const endpoint = await openEndpoint(message.ticket);
    const { head, template, templateCapabilities } = files;
    const textKey = await tasks.open({ id, ready, head, template, templateCapabilities }).catch((error) => {
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
      capacity,
      capabilities: ready.capabilities,
      maxQueue,
      queue: new GenerationQueue({ slots: capacity.maxSequences, maxQueue, clock }),
      runs: new Set(),
    };
    endpoint.receive(tokenChannel, (frame: TokenFrame) => deliver(linked, frame));
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

  start({ run: id, request, adapter }: Parameters<GenerationProtocol["start"]>[0]): DeferredReply<void> | undefined {
    const holder: { run?: Generation } = {};
    const writer = this.#options.hub.writer<GenerateEvent>(id, {
      onCancel: () => holder.run?.cancel(),
      onDrain: () => holder.run?.resume(),
    });
    try {
      const model = this.#modelFor(request.model);
      if (!model.capabilities.generates) throw generatesNothing(request.model, model.capabilities.pooling);
      const { clock, stalledReaderMs, tasks } = this.#options;
      const places = model.queue.enter(request.client, request.candidates);
      const run = new Generation({
        request,
        adapter,
        writer,
        model: {
          texts: model.texts,
          prepare: (asked, signal) => tasks.prepare(model.textKey, asked, signal),
          check: (checks, text, call) => tasks.check(checks, text, call, request.client),
          actor: model.actor,
          open: (sink) => this.#openSequence(model, sink),
          places,
          close: (id, tokenCount) => {
            model.sequences.delete(id);
            places.ended(tokenCount);
          },
        },
        clock,
        stalledReaderMs,
        onClosed: () => {
          model.runs.delete(run);
          places.close();
        },
      });
      holder.run = run;
      model.runs.add(run);
      return new DeferredReply(run.start());
    } catch (error) {
      refuse(writer, error);
      return undefined;
    }
  }

  countTokens({ run, request }: Parameters<GenerationProtocol["countTokens"]>[0]): DeferredReply<number> {
    const model = this.#modelFor(request.model);
    if (!model.capabilities.generates) throw generatesNothing(request.model, model.capabilities.pooling);
    return this.#task(run, (signal) => this.#options.tasks.countTokens(model.textKey, request, signal));
  }

  textStatistics(): TextStatistics {
    return this.#options.tasks.statistics;
  }

  translate({ run, body }: Parameters<GenerationProtocol["translate"]>[0]): DeferredReply<Moved<unknown>> {
    return this.#task(run, async (signal) => {
      const { value, movable } = await this.#options.tasks.translate(body, signal);
      return new Moved(value, movable);
    });
  }

  cancelTask({ run }: Parameters<GenerationProtocol["cancelTask"]>[0]): void {
    this.#tasks.get(run)?.abort();
  }

  #task<T>(run: number, start: (signal: AbortSignal) => Promise<T>): DeferredReply<T> {
    const task = new AbortController();
    this.#tasks.set(run, task);
    return new DeferredReply(start(task.signal).finally(() => this.#tasks.delete(run)));
  }

  embed({ run: id, request, adapter }: Parameters<GenerationProtocol["embed"]>[0]): void {
    const holder: { run?: Embedding } = {};
    const writer = this.#options.hub.writer<EmbedEvent>(id, {
      onCancel: () => holder.run?.cancel(),
      onDrain: () => {},
    });
    try {
      const model = this.#modelFor(request.model);
      const { pooling, pooledLength } = model.capabilities;
      if (pooling === null || pooling === "rank") throw embedsNothing(request.model, pooling);
      const { textKey, actor, capacity, maxQueue } = model;
      const { truncateInputs: truncates, client } = request;
      model.queue.check(client, 1);
      const run = new Embedding({
        request,
        adapter,
        writer,
        model: {
          tokenize: (inputs, signal) => this.#options.tasks.tokenize(textKey, inputs, { truncates, client, signal }),
          actor,
          capacity,
          pooledLength,
          maxQueue,
          nextId: () => this.#nextId(),
        },
        onClosed: () => model.runs.delete(run),
      });
      holder.run = run;
      model.runs.add(run);
      run.start();
    } catch (error) {
      refuse(writer, error);
    }
  }

  /** Throws why it cannot be used. */
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
    const error = toErrorRecord(
      new ServerError("model_failed", `the engine of model "${id}" ended (${exit.reason}); the request can be retried`),
    );
    for (const run of [...linked.runs]) run.fail(error);
  }

  #unavailable(id: string): ErrorRecord {
    return (
      this.#detached.get(id) ?? { code: "model_loading", message: `model "${id}" is not loaded yet; try again shortly` }
    );
  }
}

const maxSequenceId = 0x7fff_ffff;

function refuse(writer: StreamWriter<{ readonly type: "error"; readonly error: ErrorRecord }>, thrown: unknown): void {
  writer.write({ type: "error", error: toErrorRecord(thrown) });
  writer.end();
}

function generatesNothing(id: string, pooling: Pooling | null): ServerError {
  const message =
    pooling === "rank"
      ? `model "${id}" scores texts and writes none; choose another model`
      : `model "${id}" makes embeddings and no text; send it to POST /v1/embeddings`;
  return new ServerError("unsupported", message, { param: "model" });
}

function embedsNothing(id: string, pooling: Pooling | null): ServerError {
  const what = pooling === "rank" ? "scores texts, and a score is no embedding" : "has no embeddings";
  return new ServerError("unsupported", `model "${id}" ${what}; choose another model`, { param: "model" });
}

function deliver(model: LinkedModel, { rows, logprobs, cached, prompts, failed }: TokenFrame): void {
  for (let at = 0; cached !== null && at < cached.length; at += 2) {
    model.sequences.get(cached[at] as number)?.onCached(cached[at + 1] as number);
  }
  for (const { id, records } of prompts) model.sequences.get(id)?.onPrompt(records);
  let float = 0;
  for (let at = 0; at < rows.length; at += rowInts) {
    const flags = rows[at + 2] as number;
    const hasLogprobs = (flags & rowHasLogprobs) !== 0;
    const sink = model.sequences.get(rows[at] as number);
    sink?.onToken(rows[at + 1] as number, flags, rows[at + 3] as number, hasLogprobs ? logprobs : null, float);
    // Chosen logprob, count n, n pairs.
    if (hasLogprobs && logprobs) float += 2 + 2 * (logprobs[float + 1] as number);
  }
  for (const { id, error } of failed) model.sequences.get(id)?.onFailed(error);
}
