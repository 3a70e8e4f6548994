// Input of a conformer: windows of at most 30 seconds, each with its own number of frames.
import { windowSamples } from "../../../speech/audio/audio-window.ts";
import type { MediaEncoder } from "../../load/media-encoder.ts";
import type { EncoderInput } from "../encoder-input.ts";
import { stridedLength } from "./steps.ts";

interface Spectrogram {
  /** Returns the spectrogram of samples, shape [frames][bands]. */
  of(samples: Float32Array): Float32Array;
}

export class ConformerInput implements EncoderInput {
  readonly #spectrogram: Spectrogram;
  readonly #bands: number;
  readonly #stages: number;

  /** `stages`: number of convolutions with stride 2. */
  constructor(spectrogram: Spectrogram, bands: number, stages: number) {
    this.#spectrogram = spectrogram;
    this.#bands = bands;
    this.#stages = stages;
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
    const pass = encoder.beginPass();
    pass.frameCount = spectrogram.length / this.#bands;
    encoder.addRow(conformerPositions(pass.frameCount, this.#stages));
    encoder.inputRows.set(spectrogram);
  }
}

/** Returns the number of positions for `frames` frames after `stages` convolutions with stride 2. */
export function conformerPositions(frames: number, stages: number): number {
  return Array.from({ length: stages }).reduce<number>((count) => stridedLength(count), frames);
}
