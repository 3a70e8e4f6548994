// Builders for tests of the actors: jobs and consumers for the step loop, a generation whose model only records its
// calls, and a generation actor that is linked to a real step loop over the fake engine.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import type { EmbedInputs } from "../../../../actors/api/inference.ts";
import { EventStream } from "../../../../actors/generation/event-stream.ts";
import { Generation, type GenerationOptions, type SequenceSink } from "../../../../actors/generation/generation.ts";
import { startGeneration } from "../../../../actors/generation/place.ts";
import {
  type AttachedModel,
  completeJobs,
  eventChannel,
  type GenerationEvent,
  type GenerationProtocol,
  jobDefaults,
  type LeasedAdapter,
  type ModelProtocol,
  type ModelsProtocol,
  rowInts,
  type SequenceJob,
  type SequenceJobs,
  type TextTaskSettings,
  type TokenFrame,
} from "../../../../actors/messages.ts";
import { modelActor } from "../../../../actors/model/model-actor.ts";
import { RequestPreparation } from "../../../../actors/model/request-preparation.ts";
import { StepLoop } from "../../../../actors/model/step/step-loop.ts";
import { preparePrompt } from "../../../../actors/text-tasks/prepare.ts";
import type { TextModel } from "../../../../actors/text-tasks/text-model.ts";
import type { SchedulerLimits } from "../../../../engines/decoding/scheduler/limits.ts";
import type { ImageSpec } from "../../../../engines/engine.ts";
import { readModelMetadata, type TokenizerMetadata } from "../../../../engines/files/gguf/metadata.ts";
import {
  type GenerateEvent,
  greedySampling,
  type OpenRequest,
  type ResolvedRequest,
  requestDefaults,
} from "../../../../engines/generation.ts";
import type { ModelMedia } from "../../../../engines/media/model-media.ts";
import { builtInDefaults, effectiveSampling } from "../../../../engines/sampling-defaults.ts";
import { createVocabulary, vocabularyProbes } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { askedEmbeddings } from "../../../../http/embeddings/request.ts";
import type { Ref } from "../../../../runtime/actor/ref.ts";
import { StreamHub } from "../../../../runtime/actor/stream.ts";
import { ActorSystem } from "../../../../runtime/actor/system.ts";
import { PortEndpoint } from "../../../../runtime/endpoint/port-endpoint.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { ticketTransfer } from "../../../../runtime/thread/dial.ts";
import { portPair } from "../../../fixtures/actors/endpoint-pair.ts";
import { settled } from "../../../fixtures/fakes/fake-clock.ts";
import { createFakeEngine, type FakeEngine, type FakeEngineOptions } from "../../../fixtures/fakes/fake-engine.ts";
import { inlineRunner, openTextModel } from "../../../fixtures/fakes/inline-tasks.ts";
import { writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { generousLimits } from "../../../fixtures/scheduling.ts";

export function job(id: number, changes: Partial<SequenceJob> & { readonly length?: number } = {}): SequenceJob {
  const { length = 8, ...rest } = changes;
  return {
    id,
    client: "client",
    prompt: Int32Array.from({ length }, (_, i) => (i * 7 + id * 13) % 64),
    maxNewTokens: 4,
    ignoreEos: true,
    adapter: 0,
    sampling: greedySampling,
    choice: 0,
    breakers: new Int32Array(0),
    ...jobDefaults,
    ...rest,
  };
}

type TestRequest = OpenRequest & ResolvedRequest;

export function request({
  maxTokens = 8,
  sampling = greedySampling,
  ...changes
}: Partial<OpenRequest> = {}): TestRequest {
  return {
    ...requestDefaults,
    model: "tiny",
    client: "client",
    prompt: { kind: "text", text: "hello" },
    sampling: effectiveSampling(sampling, builtInDefaults),
    maxTokens,
    outputLimit: maxTokens,
    ignoreEos: true,
    candidates: changes.choices ?? 1,
    ...changes,
  };
}

/** Subscriber of a step loop. Stores the received frames, each with the tokens of one or several steps. */
export class Frames {
  readonly all: TokenFrame[] = [];

  send(frame: TokenFrame): void {
    this.all.push(frame);
  }

  get rows(): { id: number; token: number; flags: number }[] {
    return this.all.flatMap(({ rows }) =>
      Array.from({ length: rows.length / rowInts }, (_, i) => {
        const [id, token, flags] = rows.subarray(i * rowInts);
        return { id: id!, token: token!, flags: flags! };
      }),
    );
  }
}

/** Waits until all sent messages have arrived, been handled and been replied to. */
export async function crossed(): Promise<void> {
  for (let i = 0; i < 12; i++) await settled();
}

/** Returns the message that attaches a model with the tiny vocabulary to the generation actor. */
export async function attachment(
  port: MessagePort,
  { capacity, capabilities }: Pick<FakeEngine, "capacity" | "capabilities">,
  maxQueue = generousLimits.maxQueue,
): Promise<AttachedModel> {
  const path = await tinyFile();
  const vocabulary = createVocabulary(await tinyTokenizer());
  const card = { ...createFakeEngine().card, vocabSize: vocabulary.size };
  const probes = vocabularyProbes.map((text) => vocabulary.encode(text));
  const ticket = { place: "model", kind: "thread", port } as const;
  return {
    id: "tiny",
    path,
    chatTemplate: null,
    jinjaExplicit: null,
    ready: { card, capacity, capabilities, maxQueue, probes },
    ticket,
    files: null,
  };
}

/** Image capabilities of a model that accepts at most two images per request. */
export const imageSpec: ImageSpec = {
  ...{
    projector: "mlp",
    layout: "cells",
    nestsSlices: false,
    tileTokens: 16,
    cellSize: 28,
    hasGridPositions: false,
    attendsAhead: false,
  },
  ...{ path: "", maxEdge: null, maxImages: 2, maxFrames: 2, cacheBytes: 0, maxMediaBytesInFlight: 2 ** 30 },
};

/** Settings with which text tasks run in the thread of the test. */
export const textTasks: TextTaskSettings = {
  translators: "",
  quickWorkers: 1,
  slowWorkers: 2,
  maxQueued: 64,
  limitSeconds: 10,
  heapMiB: 1024,
};

/** Returns the inputs of an embedding request: texts or tokens. */
export function embedInputs(inputs: readonly string[] | readonly (readonly number[])[]): EmbedInputs {
  return askedEmbeddings({ input: inputs as string[] }).inputs;
}

export async function tinyTokenizer(): Promise<TokenizerMetadata> {
  return (await readModelMetadata(await tinyFile())).tokenizer;
}

let file: Promise<string> | null = null;

function tinyFile(): Promise<string> {
  file ??= (async () => {
    const folder = mkdtempSync(join(tmpdir(), "actors-test-"));
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, "tiny.gguf");
    await writeTinyModel(path, { seed: 1, layers: 1 });
    return path;
  })();
  return file;
}

/** Returns the text part (tokenizer and template) of a model, as the generation actor opens it. */
export async function openText(engine: Pick<FakeEngine, "capacity" | "capabilities">): Promise<TextModel> {
  const { port1, port2 } = new MessageChannel();
  const message = await attachment(port1, engine);
  port2.close();
  return openTextModel(message);
}

interface Told {
  readonly method: keyof ModelProtocol;
  readonly ids: readonly number[];
  readonly paused?: boolean;
}

/**
 * Creates a model that only records its calls. The test plays the role of the engine: it feeds tokens to `sinks`, which
 * has one entry per opened sequence.
 */
export async function createModel() {
  const text = await openText(createFakeEngine({ sequenceTokens: 512 }));
  const told: Told[] = [];
  const asked: SequenceJob[] = [];
  const messages: SequenceJobs[] = [];
  const sinks: SequenceSink[] = [];
  const answer: { error: Error | null; onAsked: () => void } = { error: null, onAsked: () => {} };
  const closed: { id: number; tokenCount: number }[] = [];
  const actor = {
    place: "model",
    name: "model",
    ask: async (_method: string, message: SequenceJobs) => {
      told.push({ method: "generate", ids: message.jobs.map(({ id }) => id) });
      messages.push(message);
      asked.push(...completeJobs(message));
      queueMicrotask(answer.onAsked);
      await Promise.resolve();
      if (answer.error) throw answer.error;
    },
    tell: (method: keyof ModelProtocol, message: Omit<Told, "method">) => void told.push({ method, ...message }),
  } as unknown as Ref<ModelProtocol>;
  const model: GenerationOptions["model"] = {
    texts: text.vocabulary,
    prepare: async (asked) => preparePrompt(asked as OpenRequest, text),
    check: async () => null,
    holdMedia: async () => null,
    actor,
    open: (sink) => sinks.push(sink),
    places: { begun: () => {}, paused: () => {}, resumed: () => {} },
    close: (id, tokenCount) => void closed.push({ id, tokenCount }),
  };
  return { model, told, asked, messages, sinks, answer, closed, vocabulary: text.vocabulary };
}

/**
 * Creates a generation on a model that only records its calls. Its stream is connected in the same way as in the actor.
 */
export async function createRun(
  changes: Partial<OpenRequest> = {},
  options: { window?: number; adapter?: LeasedAdapter; check?: GenerationOptions["model"]["check"] } = {},
) {
  const { model: made, ...recorded } = await createModel();
  const model = options.check === undefined ? made : { ...made, check: options.check };
  const { left, right } = portPair();
  const hubOptions = { channel: eventChannel, window: options.window ?? 64 };
  const reader = new StreamHub(right, hubOptions).reader<GenerationEvent>(1);
  /** Number of times that the stream was ended. */
  const ends = { count: 0 };
  const hub = new StreamHub(left, hubOptions);
  const stop = new AbortController();
  const cancel = () => stop.abort(new ServerError("cancelled", "the reader has left"));
  const stream = new EventStream({
    open: (hooks) => {
      const writer = hub.writer<GenerationEvent>(1, hooks);
      const end = () => {
        ends.count++;
        writer.end();
      };
      return { write: (event) => writer.write(event), end };
    },
    onCancel: cancel,
    onDrain: () => run.resume(),
  });
  const run = new Generation({
    request: request(changes),
    adapter: options.adapter ?? null,
    model,
    signal: stop.signal,
    onPrepared: () => stream.prepared(),
    emit: (event) => stream.write(event),
  });
  /** Runs the generation. Settles when the stream has ended, or is certain to end once its reader has room. */
  const start = () => stream.endWith(run.run());
  const close = () => {
    left.close();
    right.close();
  };
  return { start, cancel, reader, ends, close, ...recorded };
}

/** Returns the events of a stream, without `prepared`. */
export async function readAll(reader: AsyncIterable<readonly GenerationEvent[]>): Promise<GenerateEvent[]> {
  const events: GenerateEvent[] = [];
  for await (const batch of reader) for (const event of batch) if (event.type !== "prepared") events.push(event);
  return events;
}

/** Creates the actors of the generation thread and of a model thread, linked by real ports, but in one thread and with the fake engine. */
export async function createServer(
  options: { engine?: FakeEngineOptions; limits?: Partial<SchedulerLimits>; media?: ModelMedia } = {},
) {
  const front = portPair();
  const streamWindow = 64;
  const generationSystem = new ActorSystem("generation");
  const place = {
    name: "generation",
    init: { mailboxLimit: 64, streamWindow, textTasks },
    spawner: front.left,
    system: generationSystem,
    progress: () => {},
    onStop: () => {},
  };
  startGeneration(place, inlineRunner());
  generationSystem.attach(front.left);
  const readers = new StreamHub(front.right, { channel: eventChannel, window: streamWindow });
  const frontSystem = new ActorSystem("front");
  const generation = frontSystem.ref<GenerationProtocol>("generation", front.right);
  const models = frontSystem.ref<ModelsProtocol>("models", front.right);

  const { port1, port2 } = new MessageChannel();
  const limits = { ...generousLimits, ...options.limits };
  const { ready, ...rest } = await attachment(port1, createFakeEngine(options.engine), limits.maxQueue);
  const message = { ...rest, ready: { ...ready, ...(options.media && { images: imageSpec }) } };
  const engine = createFakeEngine({ ...options.engine, vocabSize: message.ready.card.vocabSize });
  const loop = new StepLoop(engine, { limits, frameIntervalMs: 0 });
  const modelSystem = new ActorSystem("model");
  modelSystem.spawn<ModelProtocol>(
    "model",
    modelActor({
      ...{ model: engine, loop, media: options.media ?? null },
      preparation: new RequestPreparation({ loop, grammars: null, store: null }),
    }),
  );
  const modelEnd = new PortEndpoint(port2, { peer: "generation" });
  modelSystem.attach(modelEnd);
  // The main thread's own link to the model; the generation actor has another.
  const toModel = portPair();
  modelSystem.attach(toModel.left);
  const modelRef = frontSystem.ref<ModelProtocol>("model", toModel.right);
  const running = loop.run();
  running.catch(() => {});
  const attach = (attached: AttachedModel) =>
    models.ask("attachModel", attached, { transfer: ticketTransfer(attached.ticket) });
  await attach(message);

  let nextId = 1;
  const start = (changes: Partial<OpenRequest> = {}, adapter: LeasedAdapter | null = null) => {
    const stream = nextId++;
    const reader = readers.reader<GenerationEvent>(stream);
    generation.tell("start", { stream, request: request(changes), adapter });
    return reader;
  };
  const embed = (inputs: readonly string[], model = "tiny", adapter: LeasedAdapter | null = null) => {
    const task = nextId++;
    const request = { model, client: "client", inputs: embedInputs(inputs), truncateInputs: false, priority: 0 };
    const embedded = generation.ask("embed", { task, request, adapter });
    return { embedded, cancel: () => generation.tell("cancelTask", { task }) };
  };
  const close = async () => {
    loop.stop();
    await running.catch(() => {});
    await Promise.all([generationSystem, modelSystem, frontSystem].map((system) => system.stop()));
    for (const end of [front.left, front.right, modelEnd, toModel.left, toModel.right]) end.close();
  };
  return { engine, loop, running, models, attach, start, embed, close, modelEnd, modelRef };
}
