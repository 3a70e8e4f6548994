// Log-mel spectrogram of Gemma 4, the input of its conformer. Computed like transformers' feature extractor does: frames of 20 ms every
// 10 ms, magnitudes, HTK's mel scale, natural logarithms.

import { FourierTransform } from "../../../speech/audio/fourier.ts";
import { hannWindow, htkScale, MelFilters } from "../../../speech/audio/mel-filters.ts";

const fftLength = 512;
const frameLength = 320;
const hop = 160;
/** Number of zeros before the first sample. */
const leadingZeros = frameLength / 2;
const bins = fftLength / 2 + 1;
/** Added to each band before the logarithm, as in transformers; llama.cpp's mtmd computes max(x, 0.001) instead. */
const melFloor = 0.001;

/** Returns the number of frames of audio with `samples` samples, at least 1. */
export function gemma4Frames(samples: number): number {
  return Math.max(1, Math.floor((samples + leadingZeros - frameLength - 1) / hop) + 1);
}

export class Gemma4Spectrogram {
  readonly #bands: number;
  readonly #filters: MelFilters;
  readonly #window = hannWindow(frameLength);
  readonly #fourier = new FourierTransform(fftLength);

  constructor(bands: number) {
    this.#bands = bands;
    this.#filters = new MelFilters({ bands, fftLength, scale: htkScale, unit: "height" });
  }

  /** Returns the spectrogram, shape [frames][bands]. `samples`: mono audio at 16,000 samples per second. */
  of(samples: Float32Array): Float32Array {
    const frames = gemma4Frames(samples.length);
    const result = new Float32Array(frames * this.#bands);
    const { real, imaginary } = this.#fourier;
    const magnitudes = new Float64Array(bins);
    for (let frame = 0; frame < frames; frame++) {
      const start = frame * hop - leadingZeros;
      real.fill(0);
      for (let i = 0; i < frameLength; i++) real[i] = (samples[start + i] ?? 0) * (this.#window[i] as number);
      this.#fourier.run();
      for (let i = 0; i < bins; i++) magnitudes[i] = Math.hypot(real[i] as number, imaginary[i] as number);
      for (let band = 0; band < this.#bands; band++)
        result[frame * this.#bands + band] = Math.log(this.#filters.apply(band, magnitudes) + melFloor);
    }
    return result;
  }
}
