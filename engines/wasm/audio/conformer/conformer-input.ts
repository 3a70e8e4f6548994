// Input of a conformer: windows of at most 30 seconds, each with its own number of frames.
import { windowSamples } from "../../../speech/whisper/mel.ts";
import type { MediaEncoder } from "../../load/media-encoder.ts";
import type { AudioInput } from "../audio-input.ts";
import { ConformerSpectrogram } from "./spectrogram.ts";
import { halved } from "./steps.ts";

export class ConformerInput implements AudioInput {
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
  write(spectrogram: Float32Array, encoder: MediaEncoder): void {
    const frames = spectrogram.length / this.#bands;
    encoder.beginPass().frameCount = frames;
    encoder.addRow(halved(halved(frames)));
    encoder.inputRows.set(spectrogram);
  }
}
