// Log-mel spectrogram in windows of 30 seconds, the input of Whisper's encoder, and of text models that accept audio through such an
// encoder.
import { FourierTransform } from "../audio/fourier.ts";

export const windowSeconds = 30;
const sampleRate = 16_000;
export const windowSamples = windowSeconds * sampleRate;
const fftLength = 400;
const hop = 160;
export const windowFrames = windowSamples / hop;
const bins = fftLength / 2 + 1;

export class MelSpectrogram {
  readonly #bands: number;
  /** Filter of each band: its first frequency bin, then one weight for each bin. */
  readonly #filters: readonly { readonly first: number; readonly weights: Float64Array }[];
  readonly #window = Float64Array.from(
    { length: fftLength },
    (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / fftLength),
  );
  readonly #fourier = new FourierTransform(fftLength);

  constructor(bands: number) {
    this.#bands = bands;
    this.#filters = melFilters(bands);
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
        for (const [band, { first, weights }] of this.#filters.entries()) {
          let sum = 0;
          for (let k = 0; k < weights.length; k++) sum += (weights[k] as number) * (power[first + k] as number);
          const value = Math.log10(Math.max(sum, 1e-10));
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

/** Triangular filters on Slaney's mel scale from 0 to 8000 Hz, each with area 1. */
function melFilters(bands: number) {
  const edges = Array.from({ length: bands + 2 }, (_, i) => hertzOf((i * melOf(sampleRate / 2)) / (bands + 1)));
  return Array.from({ length: bands }, (_, band) => {
    const [low, middle, high] = edges.slice(band, band + 3) as [number, number, number];
    const all = Array.from({ length: bins }, (_, bin) => {
      const hertz = (bin * sampleRate) / fftLength;
      const weight = Math.min((hertz - low) / (middle - low), (high - hertz) / (high - middle));
      return (Math.max(0, weight) * 2) / (high - low);
    });
    const first = Math.max(
      0,
      all.findIndex((weight) => weight > 0),
    );
    const last = all.findLastIndex((weight) => weight > 0);
    return { first, weights: Float64Array.from(all.slice(first, last + 1)) };
  });
}

const linearEnd = 1000;
const linearStep = 200 / 3;
const logStep = Math.log(6.4) / 27;

function melOf(hertz: number): number {
  return hertz < linearEnd ? hertz / linearStep : linearEnd / linearStep + Math.log(hertz / linearEnd) / logStep;
}

function hertzOf(mel: number): number {
  const start = linearEnd / linearStep;
  return mel < start ? mel * linearStep : linearEnd * Math.exp((mel - start) * logStep);
}
