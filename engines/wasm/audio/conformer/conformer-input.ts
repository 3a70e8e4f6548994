// Input of a conformer: windows of at most 30 seconds, each with its own number of frames.
import { windowSamples } from "../../../speech/audio/audio-window.ts";
import type { MediaEncoder } from "../../load/media-encoder.ts";
import type { EncoderInput } from "../encoder-input.ts";
import { ConformerSpectrogram } from "./spectrogram.ts";
import { stridedLength } from "./steps.ts";

export class ConformerInput implements EncoderInput {
  readonly #bands: number;
  readonly #spectrogram: ConformerSpectrogram;

  constructor(bands: number) {
    this.#bands = bands;
    this.#spectrogram = new ConformerSpectrogram(bands);
  }

  /** Returns spectrograms of the shape [frames][bands]. */
  windows(samples: Float32Array): Float32Array[] {
    const count = Math.max(1, Math.ceil(samples.length / windowSamples));
    return Array.from({ length: count }, (_, i) =>
      this.#spectrogram.of(samples.subarray(i * windowSamples, (i + 1) * windowSamples)),
    );
  }

  /** The input rows are the frames one after another. */
  beginPass(spectrogram: Float32Array, encoder: MediaEncoder): void {
    const frames = spectrogram.length / this.#bands;
    const pass = encoder.beginPass();
    pass.frameCount = frames;
    encoder.addRow(stridedLength(stridedLength(frames)));
    encoder.inputRows.set(spectrogram);
  }
}
