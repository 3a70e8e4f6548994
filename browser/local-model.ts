// Local model: a model that runs in this worker and its compute threads. It connects the parts that run in places of their own
// on a server: text tasks, generation, step loop and engine.
import { deliverFrame } from "../actors/generation/deliver-frame.ts";
import { Generation, type SequenceSink } from "../actors/generation/generation.ts";
import type { ModelProtocol, TokenFrame } from "../actors/messages.ts";
import { RequestPreparation } from "../actors/model/request-preparation.ts";
import { StepLoop } from "../actors/model/step/step-loop.ts";
import { ChatTemplates } from "../actors/text-tasks/chat-templates.ts";
import { checkOutput, type OutputToCheck, preparePrompt } from "../actors/text-tasks/prepare.ts";
import { TextModel } from "../actors/text-tasks/text-model.ts";
import { createGrammarHost } from "../engines/decoding/grammar/host.ts";
import { Speculation } from "../engines/decoding/speculation/speculation.ts";
import type { LoadedModel, LoadProgress } from "../engines/engine.ts";
import { parseModelMetadata } from "../engines/files/gguf/metadata.ts";
import { bytesToRead, readHeadBytes } from "../engines/files/gguf/reader.ts";
import { readModelSampling } from "../engines/files/model-sampling.ts";
import type { OpenRequest, ResolvedRequest } from "../engines/generation.ts";
import { defaultsOf, effectiveSampling, type GenerationDefaults } from "../engines/sampling-defaults.ts";
import { SharedTokenTexts, tokenTextTable } from "../engines/text/tokenizer/token-texts.ts";
import { createVocabulary } from "../engines/text/tokenizer/vocabulary.ts";
import { wasmEngine } from "../engines/wasm/engine.ts";
import { readModel } from "../engines/wasm/load/fit.ts";
import { textOf } from "../http/responses/fold/event-chunks.ts";
import { EventText } from "../http/responses/fold/event-text.ts";
import { ResponseFold } from "../http/responses/fold/fold.ts";
import { echoedSettings } from "../http/responses/fold/resource.ts";
import { type ResponseTranslation, responseTranslator } from "../http/responses/request/translator.ts";
import { AnswerMemory } from "../http/shared/answer/answer-memory.ts";
import type { MessageOf } from "../runtime/actor/behaviour.ts";
import type { Ref } from "../runtime/actor/ref.ts";
import { ServerError, toErrorRecord } from "../runtime/errors.ts";
import type { LoadedFacts, ModelToLoad } from "./messages.ts";
import { addFile, fileAt } from "./node/files.ts";
import { deserialize } from "./node/v8.ts";
import { frameIntervalMs, limits, slots, specOf, speculation } from "./settings.ts";

const client = "page";
const noPlaces = { begun: () => {}, paused: () => {}, resumed: () => {} };

/** Fields of a request that a model in the browser refuses. */
interface Body {
  readonly tools?: readonly unknown[];
  readonly adapter?: unknown;
  readonly input?: unknown;
}

interface Parts {
  readonly name: string;
  readonly threads: number;
  readonly model: LoadedModel;
  readonly text: TextModel;
  readonly texts: SharedTokenTexts;
  readonly defaults: GenerationDefaults;
}

export class LocalModel {
  readonly facts: LoadedFacts;
  /** Rejects if the engine fails. */
  readonly running: Promise<void>;
  readonly #name: string;
  readonly #text: TextModel;
  readonly #texts: SharedTokenTexts;
  readonly #defaults: GenerationDefaults;
  readonly #preparation: RequestPreparation;
  readonly #sinks = new Map<number, SequenceSink>();
  readonly #memory = new AnswerMemory();
  readonly #subscriber = {
    // The frame is delivered after the step, because a receiver may cancel its sequence.
    send: (frame: TokenFrame) => queueMicrotask(() => deliverFrame(frame, this.#sinks)),
  };
  #nextSequence = 1;

  static async load({ name, threads, context }: ModelToLoad, onProgress: LoadProgress): Promise<LocalModel> {
    const head = await readHeadBytes(name);
    const metadata = parseModelMetadata(head);
    const vocabulary = createVocabulary(metadata.tokenizer);
    const templates = ChatTemplates.open(null, metadata, vocabulary);
    const { trainedContext } = (await readModel(name)).shape;
    const model = await wasmEngine.load(specOf(name, threads, Math.min(context, trainedContext)), onProgress);
    // The user may delete the file while the model is loaded. Threads that are started later read its head only.
    addFile(name, await beginningOf(name, bytesToRead(head.bytes.byteLength)), head.fileBytes);
    const { card, capacity, capabilities } = model;
    if (!capabilities.generates)
      throw new ServerError("unsupported", `${name} generates no text: choose another model`);
    const ready = { card, capacity, capabilities, probes: null };
    const source = { id: name, head, template: null, templateCapabilities: templates.capabilities, ready };
    return new LocalModel({
      name,
      threads,
      model,
      text: TextModel.open(source),
      texts: new SharedTokenTexts(tokenTextTable(vocabulary)),
      defaults: defaultsOf(await readModelSampling(name, (notice) => console.warn(notice)), null),
    });
  }

  private constructor({ name, threads, model, text, texts, defaults }: Parts) {
    const { card, capacity } = model;
    this.#name = name;
    this.#text = text;
    this.#texts = texts;
    this.#defaults = defaults;
    const loop = new StepLoop(model, {
      limits,
      frameIntervalMs,
      createSpeculation: (cost, choose) =>
        Speculation.create({ model, draft: null, options: speculation, cost, choose }),
    });
    const grammars = createGrammarHost({
      modelPath: name,
      vocabSize: card.vocabSize,
      endOfGeneration: model.tokens.endOfGeneration,
      maxMatchers: slots + limits.maxQueue,
      threads: 1,
    });
    this.#preparation = new RequestPreparation({ loop, grammars, store: null });
    this.running = loop.run();
    this.facts = {
      description: card.description,
      engine: card.engine,
      threads,
      weightBytes: card.weightBytes,
      kvCacheBytes: card.kvCacheBytes,
      contextTokens: capacity.sequenceTokens,
    };
  }

  /**
   * Runs a response. `body`: as of POST /v1/responses. `emit` gets the text of the stream in parts of whole events. Throws if the
   * request is refused; later failures are events.
   */
  async respond(body: Body, signal: AbortSignal, emit: (text: string) => void): Promise<void> {
    refuseServerFeatures(body);
    const id = `resp_${crypto.randomUUID().replaceAll("-", "")}`;
    const translation = responseTranslator.translate(body, { responseId: id, offered: null }, "refuse");
    const request = this.#resolved(translation);
    const events = new EventText();
    const flush = (): void => {
      const text = textOf(events.take());
      emit(typeof text === "string" ? text : [...text].join(""));
    };
    const lease = this.#memory.lease(client);
    const fold = new ResponseFold({
      head: {
        id,
        createdAt: Math.floor(Date.now() / 1000),
        model: translation.facts.model ?? this.#name,
        settings: echoedSettings(translation.facts.settings, translation.asked, this.#defaults),
        namespacedNames: translation.facts.namespacedNames,
        includesSources: false,
      },
      events,
      status: "in_progress",
      hasExtensions: false,
      tokenTexts: () => this.#texts,
      lease,
    });
    const generation = new Generation({
      request,
      adapter: null,
      model: {
        texts: this.#texts,
        prepare: async (given) => preparePrompt(given as OpenRequest, this.#text),
        check: async ({ asked }, text, call) =>
          checkOutput({ asked: deserialize(asked) as OutputToCheck["asked"], text, call }),
        actor: this.#actor,
        open: (sink) => this.#open(sink),
        places: noPlaces,
        close: (sequence) => void this.#sinks.delete(sequence),
      },
      signal,
      onPrepared: () => {},
      emit: (event) => {
        fold.take(event);
        flush();
        return true;
      },
    });
    try {
      flush();
      const { usage } = await generation.run();
      fold.take({ type: "done", usage });
    } catch (error) {
      if (signal.aborted) fold.interrupt("cancelled");
      else fold.fail(toErrorRecord(error));
    } finally {
      lease.release();
    }
    flush();
  }

  #resolved({ asked, isWhole }: ResponseTranslation): ResolvedRequest {
    if (!isWhole) {
      const message = "a model in the browser keeps no responses: send the whole conversation as input";
      throw new ServerError("unsupported", message, { param: "previous_response_id" });
    }
    const origin = { model: this.#name, adapter: null, client, series: null, receivedAt: Date.now() };
    const sampling = effectiveSampling(asked.sampling, this.#defaults);
    return { ...asked, ...origin, sampling, outputLimit: asked.maxTokens };
  }

  #open(sink: SequenceSink): number {
    const id = this.#nextSequence++;
    this.#sinks.set(id, sink);
    return id;
  }

  /**
   * Stands in for the model actor: the messages of a generation become calls. These are `generate` and `cancel`, because a
   * generation pauses no sequence if `emit` takes every event.
   */
  readonly #actor = {
    place: "page",
    name: "model",
    ask: async (_generate: string, { jobs }: MessageOf<ModelProtocol, "generate">) =>
      await this.#preparation.submit(this.#subscriber, jobs),
    tell: (_cancel: string, { ids, how }: MessageOf<ModelProtocol, "cancel">) =>
      this.#preparation.cancel(this.#subscriber, ids, how),
  } as unknown as Ref<ModelProtocol>;
}

/** Returns the beginning of a file, in memory. */
async function beginningOf(name: string, bytes: number): Promise<Blob> {
  return new Blob([await fileAt(name).content.slice(0, bytes).arrayBuffer()]);
}

/** Throws `unsupported` for tools, files and adapters, which only a server has. */
function refuseServerFeatures({ tools, adapter, input }: Body): void {
  const hasFile = JSON.stringify(input ?? "").includes('"type":"input_file"');
  const wanted = adapter ? "adapters" : (tools ?? []).length > 0 ? "tools" : hasFile ? "files" : null;
  if (wanted === null) return;
  throw new ServerError("unsupported", `a model in the browser has no ${wanted}: choose a model of the server`);
}
