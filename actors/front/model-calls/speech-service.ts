// SpeechService: implements Speech for http/ on the main thread.
import { missingOnnx } from "../../../engines/onnx/onnx.ts";
import type { SpeechCard, SpeechTask } from "../../../engines/speech/speech.ts";
import type { ActorSystem } from "../../../runtime/actor/system.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import { openaiVoice } from "../../api/speech/openai-voices.ts";
import type {
  SpeakEvent,
  SpeakRequest,
  Speech,
  SpeechModelEntry,
  TranscribeEvent,
  TranscribeRequest,
} from "../../api/speech/speech.ts";
import { type SpeechLimits, type SpeechProtocol, speechChannel, speechWindow } from "../../messages.ts";
import type { ManagedModel } from "../../models/managed-model.ts";
import type { ModelManager } from "../../models/model-manager.ts";
import type { SpeechSettings } from "../../models/served-model.ts";
import { ModelCalls } from "./model-calls.ts";

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

const doing: Readonly<Record<SpeechTask, string>> = { speak: "speaks", transcribe: "transcribes" };

export class SpeechService implements Speech {
  readonly limits: SpeechLimits;
  readonly #options: SpeechServiceOptions;
  readonly #calls: ModelCalls<SpeechProtocol>;
  /** Pairs of a model and an OpenAI voice name for which the mapping has been logged. */
  readonly #told = new Set<string>();

  constructor(options: SpeechServiceOptions) {
    this.#options = options;
    const { models, system, limits } = options;
    this.limits = limits;
    this.#calls = new ModelCalls({ models, system, actor: "speech", channel: speechChannel, window: speechWindow });
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

  speak(request: SpeakRequest, signal: AbortSignal): AsyncGenerator<readonly SpeakEvent[]> {
    return this.#calls.events<SpeakEvent>(request, signal, (actor, stream, { speech }) => {
      this.#tellVoice(request, speech);
      actor.tell("speak", { stream, request });
    });
  }

  transcribe(request: TranscribeRequest, signal: AbortSignal): AsyncGenerator<readonly TranscribeEvent[]> {
    return this.#calls.events<TranscribeEvent>(request, signal, (actor, stream) =>
      actor.tell("transcribe", { stream, request }),
    );
  }

  #all(): SpeechModel[] {
    return this.#options.models.all.flatMap((model) => {
      const { speech: settings } = model.served;
      return settings === undefined ? [] : [{ model, settings }];
    });
  }

  /** Logs once per model and voice name that an OpenAI voice name is mapped to a voice of the model. */
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
