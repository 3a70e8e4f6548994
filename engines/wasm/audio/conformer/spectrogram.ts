// Log-mel spectrogram of Gemma 4, the input of its conformer. Computed like transformers' feature extractor does: frames of 20 ms every 10 ms,
// magnitudes, HTK's mel scale, natural logarithms.

import { decodedRate } from "../../../speech/audio/decode.ts";
import { FourierTransform } from "../../../speech/audio/fourier.ts";

const fftLength = 512;
const frameLength = 320;
const hop = 160;
/** Number of zeros before the first sample. */
const leadingZeros = frameLength / 2;
const bins = fftLength / 2 + 1;
/** Added to the magnitude of each band, so that silence has a logarithm. llama.cpp's mtmd takes the larger of both instead. */
const floor = 0.001;

/** Returns the number of frames of audio with `samples` samples, at least 1. */
export function frameCount(samples: number): number {
  return Math.max(1, Math.floor((samples + leadingZeros - frameLength - 1) / hop) + 1);
}

export class ConformerSpectrogram {
  readonly #bands: number;
  readonly #filters: readonly { readonly first: number; readonly weights: Float64Array }[];
  readonly #window = Float64Array.from(
    { length: frameLength },
    (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / frameLength),
  );
  readonly #fourier = new FourierTransform(fftLength);

  constructor(bands: number) {
    this.#bands = bands;
    this.#filters = melFilters(bands);
  }

  /** Returns the spectrogram, shape [frames][bands]. `samples`: mono audio at 16,000 samples per second. */
  of(samples: Float32Array): Float32Array {
    const frames = frameCount(samples.length);
    const result = new Float32Array(frames * this.#bands);
    const { real, imaginary } = this.#fourier;
    const magnitudes = new Float64Array(bins);
    for (let frame = 0; frame < frames; frame++) {
      const start = frame * hop - leadingZeros;
      real.fill(0);
      for (let i = 0; i < frameLength; i++) real[i] = (samples[start + i] ?? 0) * (this.#window[i] as number);
      this.#fourier.run();
      for (let i = 0; i < bins; i++) magnitudes[i] = Math.hypot(real[i] as number, imaginary[i] as number);
      for (const [band, { first, weights }] of this.#filters.entries()) {
        let sum = 0;
        for (let k = 0; k < weights.length; k++) sum += (weights[k] as number) * (magnitudes[first + k] as number);
        result[frame * this.#bands + band] = Math.log(sum + floor);
      }
    }
    return result;
  }
}

/** Triangular filters on HTK's mel scale from 0 to 8000 Hz, each with the height 1. */
function melFilters(bands: number) {
  const edges = Array.from({ length: bands + 2 }, (_, i) => hertzOf((i * melOf(decodedRate / 2)) / (bands + 1)));
  return Array.from({ length: bands }, (_, band) => {
    const [low, middle, high] = edges.slice(band, band + 3) as [number, number, number];
    const all = Array.from({ length: bins }, (_, bin) => {
      const hertz = (bin * decodedRate) / fftLength;
      return Math.max(0, Math.min((hertz - low) / (middle - low), (high - hertz) / (high - middle)));
    });
    const first = Math.max(
      0,
      all.findIndex((weight) => weight > 0),
    );
    const last = all.findLastIndex((weight) => weight > 0);
    return { first, weights: Float64Array.from(all.slice(first, last + 1)) };
  });
}

function melOf(hertz: number): number {
  return 2595 * Math.log10(1 + hertz / 700);
}

function hertzOf(mel: number): number {
  return 700 * (10 ** (mel / 2595) - 1);
}
