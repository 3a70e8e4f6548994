// Audio thread: decodes audio files in child processes, and has the thread of audio-worker.ts compute their embeddings.

import { ServerError } from "../../runtime/errors.ts";
import { withTemporaryFile } from "../../runtime/host/temporary-file.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { AudioRules } from "../files/projector/audio-projector.ts";
import type { EncoderStart } from "../media/encoder-loop.ts";
import { EncoderThread } from "../media/encoder-thread.ts";
import { sampleRate } from "../speech/audio/audio-window.ts";
import { decodeAudio } from "../speech/audio/decode.ts";
import { checkAudioDecoder } from "../speech/audio/decoder-package.ts";
import { type AudioWindow, cutIntoWindows } from "../wasm/audio/audio-windows.ts";
import type { AudioMessage } from "./audio-worker.ts";

/** Maximum number of audio files that are decoded at the same time. */
const maxDecodes = 2;
const worker = new URL("./audio-worker.js", import.meta.url);

interface AudioThreadStart extends EncoderStart {
  readonly rules: AudioRules;
  /** Number of floats in a frame of a window's input. */
  readonly frameFloats: number;
  /** Maximum length of an audio file in seconds. */
  readonly maxSeconds: number;
  /** Maximum number of tokens of a sequence, of which each embedding is one. */
  readonly maxTokens: number;
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
    const { rules, frameFloats } = this.#start;
    const windows = cutIntoWindows(rules, samples.length);
    this.#checkLength(samples.length / sampleRate, windows);
    const inputs = await this.#encoder.encode({ samples }, isWanted);
    if (inputs === null) return null;
    let end = 0;
    const all: Float32Array[] = [];
    for (const { frames } of windows) {
      const start = end;
      end += frames * frameFloats;
      const embeddings = await this.#encoder.encode({ window: inputs.slice(start, end) }, isWanted);
      if (embeddings === null) return null;
      all.push(embeddings);
    }
    return all;
  }

  async dispose(): Promise<void> {
    await this.#encoder.dispose();
  }

  /** Throws if the audio has too many embeddings. Called before they are computed, because a window takes seconds. */
  #checkLength(seconds: number, windows: readonly AudioWindow[]): void {
    const { maxTokens } = this.#start;
    const tokens = windows.reduce((sum, { embeddings }) => sum + embeddings, 0);
    if (tokens <= maxTokens) return;
    throw new ServerError(
      "invalid_value",
      `the audio is ${Math.ceil(seconds)} s long, which is ${tokens} tokens; the context of this model has room for ${maxTokens}: send ` +
        "less, or raise max_model_len",
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
