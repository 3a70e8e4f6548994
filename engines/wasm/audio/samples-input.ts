// Input of projectors that read samples: the samples of each window, cut into frames. The last frame is padded with silence.
import { type AudioRules, tokenSamples } from "../../files/projector/audio-projector.ts";
import type { MediaEncoder } from "../load/media-encoder.ts";
import { cutIntoWindows } from "./audio-windows.ts";
import type { EncoderInput } from "./encoder-input.ts";

export class SamplesInput implements EncoderInput {
  readonly #rules: AudioRules;

  constructor(rules: AudioRules) {
    this.#rules = rules;
  }

  /** Returns the samples of each window, shape [frames][tokenSamples]. */
  windows(samples: Float32Array): Float32Array[] {
    let end = 0;
    return cutIntoWindows(this.#rules, samples.length).map((window) => {
      const start = end;
      end += window.samples;
      const padded = new Float32Array(window.frames * tokenSamples);
      padded.set(samples.subarray(start, end));
      return padded;
    });
  }

  beginPass(window: Float32Array, encoder: MediaEncoder): void {
    encoder.beginPass();
    encoder.addRow(window.length / tokenSamples);
    encoder.inputRows.set(window);
  }
}
