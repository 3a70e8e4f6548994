// Audio encoder: turns audio windows of 30 seconds into embeddings as wide as those of the text model. Both engines use it.
import { type AudioProjectorFile, readAudioProjectorFile } from "../../files/projector/audio-projector.ts";
import { MediaEncoder } from "../load/media-encoder.ts";
import { buildAudioGraph } from "./audio-graph.ts";
import { ConformerInput } from "./conformer/conformer-input.ts";
import { Gemma4Spectrogram } from "./conformer/gemma4-spectrogram.ts";
import { Lfm2Spectrogram } from "./conformer/lfm2-spectrogram.ts";
import type { EncoderInput } from "./encoder-input.ts";
import { SamplesInput } from "./samples-input.ts";
import { WhisperInput } from "./whisper-input.ts";

export class AudioEncoder {
  readonly file: AudioProjectorFile;
  readonly #encoder: MediaEncoder;
  readonly #input: EncoderInput;

  private constructor(file: AudioProjectorFile, encoder: MediaEncoder, input: EncoderInput) {
    this.file = file;
    this.#encoder = encoder;
    this.#input = input;
  }

  /** Loads a projector file. Throws `unsupported` or `model_file_invalid`. */
  static async load(path: string, threads: number): Promise<AudioEncoder> {
    const file = await readAudioProjectorFile(path);
    const model = buildAudioGraph(file);
    const input = inputOf(file, model.inputFloats);
    return new AudioEncoder(file, await MediaEncoder.load(file.table, model, threads), input);
  }

  /**
   * Returns the input of each window of at most 30 seconds: a spectrogram, shape [bands][3000] (encoders of Whisper's kind) or
   * [frames][bands] (conformers), or samples, shape [frames][640]. `samples`: mono audio at 16,000 samples per second.
   */
  windows(samples: Float32Array): Float32Array[] {
    return this.#input.windows(samples);
  }

  /** Returns the embeddings of one window, shape [embeddings][length]. Blocks the thread for milliseconds to minutes. */
  encode(window: Float32Array): Float32Array {
    this.#input.beginPass(window, this.#encoder);
    return this.#encoder.run().slice();
  }

  dispose(): void {
    this.#encoder.dispose();
  }
}

function inputOf({ rules, sizes }: AudioProjectorFile, inputFloats: number): EncoderInput {
  const { projector } = rules;
  switch (projector) {
    case "gemma4a":
      return new ConformerInput({ ...rules, projector }, new Gemma4Spectrogram(sizes.bands), sizes.bands);
    case "lfm2a":
      return new ConformerInput({ ...rules, projector }, new Lfm2Spectrogram(sizes.bands), sizes.bands);
    case "gemma4ua":
      return new SamplesInput(rules);
    default:
      return new WhisperInput(sizes.bands, inputFloats);
  }
}
