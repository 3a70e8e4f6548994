// Audio encoder: turns windows of 30 seconds of audio into embeddings of the text model's width. It serves the models of both engines.
import { type AudioProjectorFile, readAudioProjectorFile, windowPositions } from "../../files/audio-projector.ts";
import { MelSpectrogram, windowFrames } from "../../speech/whisper/mel.ts";
import { MediaEncoder } from "../load/media-encoder.ts";
import { kernelFrames } from "./audio-outer-layers.ts";
import { buildAudioGraph } from "./audio-graph.ts";

export class AudioEncoder {
  readonly file: AudioProjectorFile;
  readonly #inputFloats: number;
  readonly #encoder: MediaEncoder;
  readonly #mel: MelSpectrogram;

  private constructor(file: AudioProjectorFile, inputFloats: number, encoder: MediaEncoder) {
    this.file = file;
    this.#inputFloats = inputFloats;
    this.#encoder = encoder;
    this.#mel = new MelSpectrogram(file.sizes.bands);
  }

  /** Loads a projector file. Throws `unsupported` or `model_file_invalid`. */
  static async load(path: string, threads: number): Promise<AudioEncoder> {
    const file = await readAudioProjectorFile(path);
    const model = buildAudioGraph(file);
    return new AudioEncoder(file, model.inputFloats, await MediaEncoder.load(file.table, model, threads));
  }

  /** Returns the spectrograms of the windows, shape [bands][3000] each. `samples`: mono, 16,000 a second. */
  windows(samples: Float32Array): Float32Array[] {
    return this.#mel.windows(samples);
  }

  /** Returns the embeddings of a window, shape [windowTokens][length]. Synchronous: it takes from milliseconds to minutes. */
  encode(spectrogram: Float32Array): Float32Array {
    this.#encoder.beginPass();
    this.#writeFrames(spectrogram);
    this.#encoder.addRow(windowPositions);
    return this.#encoder.run().slice();
  }

  dispose(): void {
    this.#encoder.dispose();
  }

  /** Writes for each frame the values that the first convolution multiplies: of each band, the frames before, at and after it. */
  #writeFrames(spectrogram: Float32Array): void {
    const { bands } = this.file.sizes;
    const rows = this.#encoder.inputRows;
    const columns = this.#inputFloats / 2;
    for (let band = 0; band < bands; band++) {
      for (let k = 0; k < kernelFrames; k++) {
        const to = band * kernelFrames + k;
        for (let frame = 0; frame < windowFrames; frame++) {
          const from = frame + k - 1;
          const isInside = from >= 0 && from < windowFrames;
          rows[frame * columns + to] = isInside ? (spectrogram[band * windowFrames + from] as number) : 0;
        }
      }
    }
  }
}
