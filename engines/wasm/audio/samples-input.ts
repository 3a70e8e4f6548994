// Input of projectors that read samples: windows of at most 30 seconds, cut into frames. The last frame is padded with silence.
import { windowSamples } from "../../speech/audio/audio-window.ts";
import type { MediaEncoder } from "../load/media-encoder.ts";
import type { EncoderInput } from "./encoder-input.ts";

export class SamplesInput implements EncoderInput {
  readonly #frameLength: number;

  /** `frameLength`: number of samples in a frame. */
  constructor(frameLength: number) {
    this.#frameLength = frameLength;
  }

  /** Returns the samples of each window, shape [frames][frameLength]. */
  windows(samples: Float32Array): Float32Array[] {
    const count = Math.max(1, Math.ceil(samples.length / windowSamples));
    return Array.from({ length: count }, (_, i) => {
      const own = samples.subarray(i * windowSamples, (i + 1) * windowSamples);
      const frames = Math.max(1, Math.ceil(own.length / this.#frameLength));
      const padded = new Float32Array(frames * this.#frameLength);
      padded.set(own);
      return padded;
    });
  }

  beginPass(window: Float32Array, encoder: MediaEncoder): void {
    encoder.beginPass();
    encoder.addRow(window.length / this.#frameLength);
    encoder.inputRows.set(window);
  }
}
