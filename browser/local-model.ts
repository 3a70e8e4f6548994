// Local model: a model that runs in this worker and its compute threads. It connects the components that run in separate
// threads or processes on a server: text tasks, generation, step loop and engine.
import { deliverFrame } from "../actors/generation/deliver-frame.ts";
import { Generation, type SequenceSink } from "../actors/generation/generation.ts";
import { completeJobs, type ModelProtocol, type TokenFrame } from "../actors/messages.ts";
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
import { AnswerMemory } from "../http/shared/answer/answer-memory.ts";
import type { AskedRequest } from "../http/shared/translation.ts";
import type { MessageOf } from "../runtime/actor/behaviour.ts";
import type { Ref } from "../runtime/actor/ref.ts";
import { ServerError } from "../runtime/errors.ts";
import { Answer, client } from "./answer.ts";
import type { LoadedFacts, ModelToLoad } from "./messages.ts";
import { addFile, fileAt } from "./node/files.ts";
import { deserialize } from "./node/v8.ts";
import type { RunningModel } from "./serve-page.ts";
import { frameIntervalMs, limits, slots, specOf, speculation } from "./settings.ts";

const noPlaces = { begun: () => {}, paused: () => {}, resumed: () => {} };

interface Parts {
  readonly name: string;
  readonly threads: number;
  readonly model: LoadedModel;
  readonly text: TextModel;
  readonly texts: SharedTokenTexts;
  readonly defaults: GenerationDefaults;
}

export class LocalModel implements RunningModel {
  readonly facts: LoadedFacts;
  readonly running: Promise<void>;
  readonly #name: string;
  readonly #text: TextModel;
  readonly #texts: SharedTokenTexts;
  readonly #defaults: GenerationDefaults;
  readonly #preparation: RequestPreparation;
  readonly #sinks = new Map<number, SequenceSink>();
  readonly #memory = new AnswerMemory();
  readonly #subscriber = {
    // The frame (new tokens) is delivered after the step of the engine has ended, because a receiver may cancel its sequence.
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
    // The user may delete the file while the model is loaded. Threads that start later need only its header, which is kept in
    // memory.
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

  async respond(body: object, signal: AbortSignal, emit: (text: string) => void): Promise<void> {
    const answer = new Answer(body, {
      name: this.#name,
      defaults: this.#defaults,
      texts: this.#texts,
      memory: this.#memory,
    });
    const request = this.#resolved(answer.asked);
    await answer.run(signal, emit, async (take) => {
      const generation = new Generation({
        request,
        adapter: null,
        model: {
          texts: this.#texts,
          prepare: async (given) => preparePrompt(given as OpenRequest, this.#text),
          // A model in a page accepts no images or audio.
          holdMedia: async () => null,
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
          take(event);
          return true;
        },
      });
      return (await generation.run()).usage;
    });
  }

  #resolved(asked: AskedRequest): ResolvedRequest {
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
   * Replaces the model actor: the messages of a generation become direct calls. Only `generate` and `cancel` occur, because a
   * generation pauses no sequence as long as `emit` accepts every event.
   */
  readonly #actor = {
    place: "page",
    name: "model",
    ask: async (_generate: string, message: MessageOf<ModelProtocol, "generate">) =>
      await this.#preparation.submit(this.#subscriber, completeJobs(message)),
    tell: (_cancel: string, { ids, how }: MessageOf<ModelProtocol, "cancel">) =>
      this.#preparation.cancel(this.#subscriber, ids, how),
  } as unknown as Ref<ModelProtocol>;
}

/** Copies the beginning of a file to memory. */
async function beginningOf(name: string, bytes: number): Promise<Blob> {
  return new Blob([await fileAt(name).content.slice(0, bytes).arrayBuffer()]);
}
