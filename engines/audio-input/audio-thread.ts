// Audio thread: decodes audio files in child processes, and has the thread of audio-worker.ts compute their embeddings.

import { ServerError } from "../../runtime/errors.ts";
import { withTemporaryFile } from "../../runtime/host/temporary-file.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { EncoderStart } from "../media/encoder-loop.ts";
import { EncoderThread } from "../media/encoder-thread.ts";
import { sampleRate } from "../speech/audio/audio-window.ts";
import { decodeAudio, missingDecoder } from "../speech/audio/decode.ts";
import type { AudioMessage } from "./audio-worker.ts";

/** Maximum number of audio files that are decoded at the same time. */
const maxDecodes = 2;
const worker = new URL("./audio-worker.js", import.meta.url);

interface AudioThreadStart extends EncoderStart {
  /** Number of floats in the spectrogram of a full audio window. Only the last window of a file may have fewer. */
  readonly windowFloats: number;
  /** Maximum length of an audio file in seconds. */
  readonly maxSeconds: number;
  /** Returns the number of embeddings of audio with this many samples. */
  readonly countEmbeddings: (samples: number) => number;
  /** Maximum number of tokens of a sequence, of which each embedding is one. */
  readonly maxTokens: number;
}

/** Throws `config_invalid` if the package that decodes audio is not installed. */
export function checkAudioDecoder(): void {
  const missing = missingDecoder();
  if (missing !== null) throw new ServerError("config_invalid", `mmproj: ${missing}`, { param: "mmproj" });
}

export class AudioThread {
  readonly #start: AudioThreadStart;
  readonly #encoder: EncoderThread<AudioMessage>;
  readonly #gate = new Gate(maxDecodes);

  private constructor(start: AudioThreadStart, encoder: EncoderThread<AudioMessage>) {
    this.#start = start;
    this.#encoder = encoder;
  }

  /**
   * Starts the thread and loads the projector file. Throws `unsupported`, `model_file_invalid`, or `config_invalid` if the package
   * that decodes audio is not installed.
   */
  static async start(start: AudioThreadStart): Promise<AudioThread> {
    checkAudioDecoder();
    const { path, threads } = start;
    return new AudioThread(start, await EncoderThread.start<AudioMessage>({ path, threads }, worker));
  }

  /** Resolves with the error when the thread has ended. */
  get ended(): Promise<ServerError> {
    return this.#encoder.ended;
  }

  /**
   * Returns the embeddings of each window of 30 seconds of an audio file; null if `isWanted` returns false before all are computed.
   * Throws `invalid_value` if the file cannot be decoded, or is longer than the limit or the model's context allows.
   */
  async encode(file: Uint8Array, client: string, isWanted: () => boolean): Promise<readonly Float32Array[] | null> {
    const samples = await this.#gate.pass(async () => (isWanted() ? await this.#decoded(file) : null), client);
    if (samples === null) return null;
    this.#checkLength(samples.length);
    const spectrograms = await this.#encoder.encode({ samples }, isWanted);
    if (spectrograms === null) return null;
    const { windowFloats: floats } = this.#start;
    const windows: Float32Array[] = [];
    for (let from = 0; from < spectrograms.length; from += floats) {
      const embeddings = await this.#encoder.encode({ spectrogram: spectrograms.slice(from, from + floats) }, isWanted);
      if (embeddings === null) return null;
      windows.push(embeddings);
    }
    return windows;
  }

  async dispose(): Promise<void> {
    await this.#encoder.dispose();
  }

  /** Throws if the audio has too many embeddings. Called before they are computed, because a window takes seconds. */
  #checkLength(samples: number): void {
    const { countEmbeddings, maxTokens } = this.#start;
    const tokens = countEmbeddings(samples);
    if (tokens <= maxTokens) return;
    throw new ServerError(
      "invalid_value",
      `the audio is ${Math.ceil(samples / sampleRate)} s long, which is ${tokens} tokens; the context of this model has room for ` +
        `${maxTokens}: send less, or raise max_model_len`,
    );
  }

  async #decoded(file: Uint8Array): Promise<Float32Array> {
    const { maxSeconds } = this.#start;
    try {
      return await withTemporaryFile("audio", file, (path) =>
        decodeAudio(path, maxSeconds, new AbortController().signal),
      );
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      // The error names no field, because several requests may share this work; each request adds its own field.
      throw new ServerError("invalid_value", `the audio cannot be used: ${error.message}`, { cause: error });
    }
  }
}
