// Audio encoder: turns audio windows of 30 seconds into embeddings as wide as those of the text model. Both engines use it.
import { type AudioProjectorFile, readAudioProjectorFile, windowPositions } from "../../files/audio-projector.ts";
import { MelSpectrogram, windowFrames } from "../../speech/whisper/mel.ts";
import { MediaEncoder } from "../load/media-encoder.ts";
import { buildAudioGraph } from "./audio-graph.ts";
import { kernelFrames } from "./audio-outer-layers.ts";

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

  /**
   * Splits audio into windows and returns the spectrogram of each window, shape [bands][3000]. `samples`: mono audio at 16,000 samples per
   * second.
   */
  windows(samples: Float32Array): Float32Array[] {
    return this.#mel.windows(samples);
  }

  /** Returns the embeddings of one window, shape [windowTokens][length]. Blocks the thread for milliseconds to minutes. */
  encode(spectrogram: Float32Array): Float32Array {
    this.#encoder.beginPass();
    this.#writeFrames(spectrogram);
    this.#encoder.addRow(windowPositions);
    return this.#encoder.run().slice();
  }

  dispose(): void {
    this.#encoder.dispose();
  }

  /**
   * Writes the input rows of the first convolution. The row of a frame contains, for each band, the values of the previous frame, the frame
   * itself and the next frame; frames outside the window are zeros.
   */
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
