// Input of encoders of Whisper's kind: windows of exactly 30 seconds, the last one padded with silence.
import { windowPositions } from "../../files/projector/audio-projector.ts";
import { MelSpectrogram, windowFrames } from "../../speech/whisper/mel.ts";
import type { MediaEncoder } from "../load/media-encoder.ts";
import { kernelFrames } from "./audio-outer-layers.ts";
import type { EncoderInput } from "./encoder-input.ts";

export class WhisperInput implements EncoderInput {
  readonly #bands: number;
  readonly #inputFloats: number;
  readonly #mel: MelSpectrogram;

  /** `inputFloats`: number of floats in a token's input row, for two frames. */
  constructor(bands: number, inputFloats: number) {
    this.#bands = bands;
    this.#inputFloats = inputFloats;
    this.#mel = new MelSpectrogram(bands);
  }

  /** Returns spectrograms of the shape [bands][3000]. */
  windows(samples: Float32Array): Float32Array[] {
    return this.#mel.windows(samples);
  }

  /**
   * Writes the input rows of the first convolution. The row of a frame contains, for each band, the values of the previous frame, the frame
   * itself and the next frame; frames outside the window are zeros.
   */
  beginPass(spectrogram: Float32Array, encoder: MediaEncoder): void {
    encoder.beginPass();
    encoder.addRow(windowPositions);
    const rows = encoder.inputRows;
    const columns = this.#inputFloats / 2;
    for (let band = 0; band < this.#bands; band++) {
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
