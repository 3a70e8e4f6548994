// Log-mel spectrogram in windows of 30 seconds, the input of Whisper's encoder, and of text models that accept audio through such an
// encoder.
import { windowSamples } from "../audio/audio-window.ts";
import { FourierTransform } from "../audio/fourier.ts";
import { hannWindow, MelFilters, slaneyScale } from "../audio/mel-filters.ts";

const fftLength = 400;
const hop = 160;
export const windowFrames = windowSamples / hop;
const bins = fftLength / 2 + 1;

export class MelSpectrogram {
  readonly #bands: number;
  readonly #filters: MelFilters;
  readonly #window = hannWindow(fftLength);
  readonly #fourier = new FourierTransform(fftLength);

  constructor(bands: number) {
    this.#bands = bands;
    this.#filters = new MelFilters({ bands, fftLength, scale: slaneyScale, unit: "area" });
  }

  /** Returns `bands` rows of 3000 frames. `samples`: at most 30 s, padded with silence. */
  of(samples: Float32Array): Float32Array {
    return this.windows(samples.subarray(0, windowSamples))[0] as Float32Array;
  }

  /** Returns `bands` rows of 3000 frames for each window of the samples. The last window is padded with silence. */
  windows(samples: Float32Array): Float32Array[] {
    const count = Math.max(1, Math.ceil(samples.length / windowSamples));
    const windows = Array.from({ length: count }, () => new Float32Array(this.#bands * windowFrames));
    const power = new Float64Array(bins);
    let largest = Number.NEGATIVE_INFINITY;
    for (const [i, window] of windows.entries()) {
      for (let frame = 0; frame < windowFrames; frame++) {
        this.#powerOf(samples, i * windowFrames + frame, count * windowSamples, power);
        for (let band = 0; band < this.#bands; band++) {
          const value = Math.log10(Math.max(this.#filters.apply(band, power), 1e-10));
          if (value > largest) largest = value;
          window[band * windowFrames + frame] = value;
        }
      }
    }
    for (const window of windows) {
      for (let i = 0; i < window.length; i++) window[i] = (Math.max(window[i] as number, largest - 8) + 4) / 4;
    }
    return windows;
  }

  /** Computes the power spectrum of a frame. `length`: number of samples, including the silence after the end of `samples`. */
  #powerOf(samples: Float32Array, frame: number, length: number, power: Float64Array): void {
    const { real, imaginary } = this.#fourier;
    const start = frame * hop - fftLength / 2;
    for (let i = 0; i < fftLength; i++) {
      // The signal is reflected at both ends.
      let at = Math.abs(start + i);
      if (at >= length) at = 2 * length - 2 - at;
      real[i] = (samples[at] ?? 0) * (this.#window[i] as number);
    }
    this.#fourier.run();
    for (let i = 0; i < bins; i++) power[i] = (real[i] as number) ** 2 + (imaginary[i] as number) ** 2;
  }
}
