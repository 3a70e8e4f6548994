// SpeechService: implements Speech for http/ on the main thread. It waits until the model is loaded, sends the call to the model's
// process, and passes the events back.
import { missingOnnx } from "../../engines/onnx/onnx.ts";
import type { SpeechCard, SpeechTask } from "../../engines/speech/speech.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import type { ActorSystem } from "../../runtime/actor/system.ts";
import { fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Place } from "../../runtime/thread/place.ts";
import { openaiVoice } from "../api/speech/openai-voices.ts";
import type {
  SpeakEvent,
  SpeakRequest,
  Speech,
  SpeechModelEntry,
  TranscribeEvent,
  TranscribeRequest,
} from "../api/speech/speech.ts";
import {
  type ModelPlaceReady,
  type SpeechLimits,
  type SpeechProtocol,
  speechChannel,
  speechWindow,
} from "../messages.ts";
import type { ManagedModel } from "../models/managed-model.ts";
import type { ModelManager } from "../models/model-manager.ts";
import { loading, type SpeechSettings } from "../models/served-model.ts";

export interface SpeechServiceOptions {
  readonly models: ModelManager;
  readonly system: ActorSystem;
  readonly limits: SpeechLimits;
  readonly defaultModelId: string;
  readonly log: Logger;
}

interface SpeechModel {
  readonly model: ManagedModel;
  readonly settings: SpeechSettings;
}

type SpeechEvent = SpeakEvent | TranscribeEvent;

const doing: Readonly<Record<SpeechTask, string>> = { speak: "speaks", transcribe: "transcribes" };

export class SpeechService implements Speech {
  readonly limits: SpeechLimits;
  readonly #options: SpeechServiceOptions;
  /** Streams of each model's process. */
  readonly #hubs = new WeakMap<Place<ModelPlaceReady>, StreamHub>();
  /** Names of OpenAI's voices that have been logged, with their models. */
  readonly #told = new Set<string>();
  #lastStream = 0;

  constructor(options: SpeechServiceOptions) {
    this.#options = options;
    this.limits = options.limits;
  }

  models(): readonly SpeechModelEntry[] {
    return this.#all().map(({ model, settings }) => ({
      id: model.id,
      engine: settings.spec.engine,
      task: settings.spec.task,
      card: cardOf(model),
    }));
  }

  resolve(requested: string | undefined, task: SpeechTask): string {
    const able = this.#all().filter(({ settings }) => settings.spec.task === task);
    if (requested === undefined || requested === "default") {
      const chosen = able.find(({ model }) => model.id === this.#options.defaultModelId) ?? able[0];
      if (chosen !== undefined) return chosen.model.id;
      throw noneAble(task);
    }
    const { id } = this.#options.models.resolve(requested);
    if (able.some(({ model }) => model.id === id)) return id;
    const others = able.map(({ model }) => JSON.stringify(model.id)).join(", ");
    const advice = others === "" ? noneAble(task).message : `name one of: ${others}`;
    throw new ServerError("unsupported", `model "${id}" does not ${task}; ${advice}`, { param: "model" });
  }

  async *speak(request: SpeakRequest, signal: AbortSignal): AsyncGenerator<readonly SpeakEvent[]> {
    yield* this.#call<SpeakEvent>(request, signal, (place, stream) => {
      this.#tellVoice(request, place.ready.speech);
      this.#options.system.ref<SpeechProtocol>("speech", place.endpoint).tell("speak", { stream, request });
    });
  }

  async *transcribe(request: TranscribeRequest, signal: AbortSignal): AsyncGenerator<readonly TranscribeEvent[]> {
    yield* this.#call<TranscribeEvent>(request, signal, (place, stream) =>
      this.#options.system.ref<SpeechProtocol>("speech", place.endpoint).tell("transcribe", { stream, request }),
    );
  }

  #all(): SpeechModel[] {
    return this.#options.models.all.flatMap((model) => {
      const { speech: settings } = model.served;
      return settings === undefined ? [] : [{ model, settings }];
    });
  }

  async *#call<Event extends SpeechEvent>(
    { model: id, client }: { readonly model: string; readonly client: string },
    signal: AbortSignal,
    begin: (place: Place<ModelPlaceReady>, stream: number) => void,
  ): AsyncGenerator<readonly Event[]> {
    const model = this.#options.models.get(id);
    let hasEntered = false;
    try {
      await model.enter(signal, client);
      hasEntered = true;
      const { place } = model.model;
      if (place === null) throw fromErrorRecord(loading(id));
      const stream = ++this.#lastStream;
      const reader = this.#hubOf(place).reader<Event>(stream);
      const cancel = (): void => reader.cancel();
      signal.addEventListener("abort", cancel, { once: true });
      try {
        begin(place, stream);
        if (signal.aborted) cancel();
        yield* reader;
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    } catch (error) {
      if (!signal.aborted) yield [{ type: "error", error: toErrorRecord(error) } as Event];
    } finally {
      if (hasEntered) model.leave();
    }
  }

  #hubOf(place: Place<ModelPlaceReady>): StreamHub {
    const found = this.#hubs.get(place);
    if (found !== undefined) return found;
    const hub = new StreamHub(place.endpoint, { channel: speechChannel, window: speechWindow });
    this.#hubs.set(place, hub);
    return hub;
  }

  /** Logs once that a voice of OpenAI stands for a voice of the model. */
  #tellVoice({ model, voice }: SpeakRequest, card: SpeechCard | undefined): void {
    if (voice === null || card === undefined || card.voices.some(({ id }) => id === voice)) return;
    const found = openaiVoice(voice, card.voices);
    const key = `${model} ${voice}`;
    if (found === null || this.#told.has(key)) return;
    this.#told.add(key);
    this.#options.log.info(
      { model, asked: voice, voice: found.id },
      "a voice of OpenAI stands for a voice of the model",
    );
  }
}

function cardOf(model: ManagedModel): SpeechCard | null {
  return model.model.capabilities?.speech ?? null;
}

function noneAble(task: SpeechTask): ServerError {
  const what = task === "speak" ? "a Piper or Kokoro voice, or espeak-ng" : "a Whisper model in ONNX";
  const missing = missingOnnx();
  const message =
    `no model of this server ${doing[task]}; serve one (${what}) with a [[models]] entry of kind = "speech"` +
    (missing === null ? "" : `; ${missing}`);
  return new ServerError("unsupported", message, { param: "model" });
}
