// Speech contract: the interface of the engines that speak and of those that transcribe. A place (thread or process) loads one model and
// uses it through this interface. Engines do not depend on HTTP or actors.

export type SpeechEngineName = "piper" | "kokoro" | "espeak" | "whisper";

/** What a speech model does: `speak` turns text into audio, `transcribe` turns audio into text. */
export type SpeechTask = "speak" | "transcribe";

/** A speech model to load. Paths are local. */
export interface SpeechSpec {
  readonly engine: SpeechEngineName;
  readonly task: SpeechTask;
  /** Piper: the .onnx file. Kokoro and Whisper: the folder. espeak-ng: the constant "espeak-ng". */
  readonly path: string;
  /** Number of compute threads. */
  readonly threads: number;
}

export interface SpeechVoice {
  readonly id: string;
  /** Language as a tag, for example en-us. */
  readonly language: string;
}

/** Facts of a loaded speech model. */
export interface SpeechCard {
  readonly engine: SpeechEngineName;
  readonly task: SpeechTask;
  /** Name and version of the library that computes. */
  readonly backend: string;
  /** Bytes of the model's files. */
  readonly weightBytes: number;
  /** Sample rate in Hz of the audio that the model produces or, if it transcribes, accepts. */
  readonly sampleRate: number;
  /** Voices; the first one is the default. Empty for a model that transcribes. */
  readonly voices: readonly SpeechVoice[];
  /** Languages that a model transcribes, as ISO 639-1 codes; empty for a model that speaks. */
  readonly languages: readonly string[];
}

export interface Phrase {
  readonly text: string;
  /** Id of a voice, one of SpeechCard.voices. */
  readonly voice: string;
  /** Speaking rate, 0.25..4; 1 = the voice's own rate. */
  readonly speed: number;
  readonly signal: AbortSignal;
}

export interface SpeakingModel {
  readonly card: SpeechCard;
  /** Speaks one sentence. Returns mono samples from -1 to 1. Throws `cancelled` after the signal is aborted. */
  speak(phrase: Phrase): Promise<Float32Array>;
  dispose(): Promise<void>;
}

export interface TranscribeOptions {
  /** ISO 639-1 code of the spoken language; null = detected from the first window (30 s) of the audio. */
  readonly language: string | null;
  /** Whether the text is translated into English. */
  readonly translates: boolean;
  readonly signal: AbortSignal;
}

/** Text of a section of the audio; times in seconds from the start of the audio. */
export interface TranscriptSegment {
  readonly start: number;
  readonly end: number;
  readonly text: string;
  readonly tokens: readonly number[];
  /** Mean log probability of the tokens of the window (up to 30 s of audio) that contains the segment. */
  readonly averageLogprob: number;
  /** Probability that the window (up to 30 s of audio) that contains the segment has no speech. */
  readonly noSpeech: number;
}

export interface TranscribingModel {
  readonly card: SpeechCard;
  /**
   * Transcribes audio of `sampleRate` samples per second. Yields the segments of one window (up to 30 s) after another. `onLanguage` is
   * called once, before the first segment.
   */
  transcribe(
    samples: Float32Array,
    options: TranscribeOptions,
    onLanguage: (language: string) => void,
  ): AsyncIterable<readonly TranscriptSegment[]>;
  dispose(): Promise<void>;
}

export type SpeechModel =
  | { readonly task: "speak"; readonly model: SpeakingModel }
  | { readonly task: "transcribe"; readonly model: TranscribingModel };
