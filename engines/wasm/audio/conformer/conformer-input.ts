// Input of a conformer: the spectrogram of each window.
import type { AudioRules } from "../../../files/projector/audio-projector.ts";
import type { MediaEncoder } from "../../load/media-encoder.ts";
import { conformerStages, cutIntoWindows } from "../audio-windows.ts";
import type { EncoderInput } from "../encoder-input.ts";
import { stridedLength } from "./steps.ts";

interface Spectrogram {
  /** Returns the spectrogram of samples, shape [frames][bands]. */
  of(samples: Float32Array): Float32Array;
}

export class ConformerInput implements EncoderInput {
  readonly #rules: AudioRules & { readonly projector: keyof typeof conformerStages };
  readonly #spectrogram: Spectrogram;
  readonly #bands: number;

  constructor(
    rules: AudioRules & { readonly projector: keyof typeof conformerStages },
    spectrogram: Spectrogram,
    bands: number,
  ) {
    this.#rules = rules;
    this.#spectrogram = spectrogram;
    this.#bands = bands;
  }

  /** Returns spectrograms of the shape [frames][bands]. */
  windows(samples: Float32Array): Float32Array[] {
    let end = 0;
    return cutIntoWindows(this.#rules, samples.length).map((window) => {
      const start = end;
      end += window.samples;
      return this.#spectrogram.of(samples.subarray(start, end));
    });
  }

  /** The input rows are the frames one after another. */
  beginPass(spectrogram: Float32Array, encoder: MediaEncoder): void {
    const pass = encoder.beginPass();
    pass.frameCount = spectrogram.length / this.#bands;
    encoder.addRow(stridedLength(pass.frameCount, conformerStages[this.#rules.projector]));
    encoder.inputRows.set(spectrogram);
  }
}
