// Speech: the interface that http/ uses for text-to-speech and transcription. Implemented by actors/front/model-calls/speech-service.ts.
import type { AudioFormat } from "../../../engines/speech/audio/encoder.ts";
import type { SpeechCard, SpeechEngineName, SpeechTask, TranscriptSegment } from "../../../engines/speech/speech.ts";
import type { ErrorRecord } from "../../../runtime/errors.ts";

export interface SpeakRequest {
  /** Id of a text-to-speech model. */
  readonly model: string;
  readonly client: string;
  readonly input: string;
  /** Id of a voice of the model, or an OpenAI voice name; null = the model's first voice. */
  readonly voice: string | null;
  /** Speaking rate, 0.25..4; 1 = the voice's normal rate. */
  readonly speed: number;
  readonly format: AudioFormat;
}

export type SpeakEvent =
  /** First event. */
  | { readonly type: "begin"; readonly contentType: string }
  /** Next bytes of the audio file. */
  | { readonly type: "audio"; readonly bytes: Uint8Array }
  /** Last event. `seconds`: duration of the audio. */
  | { readonly type: "done"; readonly seconds: number; readonly sentences: number }
  | { readonly type: "error"; readonly error: ErrorRecord };

export interface TranscribeRequest {
  /** Id of a transcription model. */
  readonly model: string;
  readonly client: string;
  /** Path of the audio file. It must exist until the last event. */
  readonly path: string;
  /** ISO 639-1 code of the spoken language; null = detect it. */
  readonly language: string | null;
  /** Whether to translate the text into English. */
  readonly translates: boolean;
}

export type TranscribeEvent =
  /** First event. `seconds`: duration of the audio. */
  | { readonly type: "begin"; readonly language: string; readonly seconds: number }
  | { readonly type: "segments"; readonly segments: readonly TranscriptSegment[] }
  | { readonly type: "done" }
  | { readonly type: "error"; readonly error: ErrorRecord };

/** A configured speech model. */
export interface SpeechModelEntry {
  readonly id: string;
  readonly engine: SpeechEngineName;
  readonly task: SpeechTask;
  /** Facts of the model; null until the model is loaded for the first time. */
  readonly card: SpeechCard | null;
}

export interface Speech {
  /** Maximum size of an audio file in bytes, and maximum length of a text to speak in characters. */
  readonly limits: { readonly maxAudioBytes: number; readonly maxInputChars: number };
  models(): readonly SpeechModelEntry[];
  /**
   * Returns the id of a model for a task. undefined and "default" mean the default model if it supports the task, else the first
   * model that does. Throws `model_not_found`. Throws `unsupported` if the named model does not support the task, or if no model does.
   */
  resolve(requested: string | undefined, task: SpeechTask): string;
  /** Converts a text to speech. Failures arrive as one final `error` event; they are never thrown. */
  speak(request: SpeakRequest, signal: AbortSignal): AsyncIterable<readonly SpeakEvent[]>;
  /** Transcribes an audio file. Failures arrive as one final `error` event; they are never thrown. */
  transcribe(request: TranscribeRequest, signal: AbortSignal): AsyncIterable<readonly TranscribeEvent[]>;
}
