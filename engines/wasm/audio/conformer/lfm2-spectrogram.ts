// Log-mel spectrogram of LFM2-Audio, the input of its conformer. Computed like NeMo's feature extractor does: pre-emphasis, frames of 25 ms
// every 10 ms, power, Slaney's mel scale, natural logarithms; each band is normalised over the frames.
import { FourierTransform } from "../../../speech/audio/fourier.ts";
import { hannWindow, MelFilters, slaneyScale } from "../../../speech/audio/mel-filters.ts";

const fftLength = 512;
const frameLength = 400;
const hop = 160;
const bins = fftLength / 2 + 1;
/** Share of a sample that is subtracted from the next one. */
const emphasis = 0.97;
/** Added to each band before the logarithm, as in NeMo; llama.cpp's mtmd computes max(x, 2^-24) instead. */
const melFloor = 2 ** -24;
/** Added to the standard deviation of a band, as in NeMo; mtmd adds it to the variance. */
const deviationFloor = 1e-5;

/** Returns the number of frames of audio with `samples` samples. */
export function lfm2Frames(samples: number): number {
  return Math.floor(samples / hop) + 1;
}

export class Lfm2Spectrogram {
  readonly #bands: number;
  readonly #filters: MelFilters;
  /** NeMo's window is symmetric; mtmd's is periodic. */
  readonly #window = hannWindow(frameLength, "symmetric");
  readonly #fourier = new FourierTransform(fftLength);

  constructor(bands: number) {
    this.#bands = bands;
    this.#filters = new MelFilters({ bands, fftLength, scale: slaneyScale, unit: "area" });
  }

  /** Returns the spectrogram, shape [frames][bands]. `samples`: mono audio at 16,000 samples per second. */
  of(samples: Float32Array): Float32Array {
    const frames = lfm2Frames(samples.length);
    const result = new Float32Array(frames * this.#bands);
    const { real, imaginary } = this.#fourier;
    const power = new Float64Array(bins);
    const emphasised = (at: number) => (samples[at] ?? 0) - (at > 0 ? emphasis * (samples[at - 1] ?? 0) : 0);
    for (let frame = 0; frame < frames; frame++) {
      real.fill(0);
      // The window is in the middle of the transform, which is centred at the frame's time.
      const start = frame * hop - frameLength / 2;
      const offset = (fftLength - frameLength) / 2;
      for (let i = 0; i < frameLength; i++) {
        const at = start + i;
        if (at >= 0 && at < samples.length) real[offset + i] = emphasised(at) * (this.#window[i] as number);
      }
      this.#fourier.run();
      for (let i = 0; i < bins; i++) power[i] = (real[i] as number) ** 2 + (imaginary[i] as number) ** 2;
      for (let band = 0; band < this.#bands; band++)
        result[frame * this.#bands + band] = Math.log(this.#filters.apply(band, power) + melFloor);
    }
    for (let band = 0; band < this.#bands; band++) this.#normalise(result, band, frames);
    return result;
  }

  /** Normalises a band over floor(samples / hop) frames, as NeMo counts them; the frame after them is zero. */
  #normalise(values: Float32Array, band: number, frames: number): void {
    const full = frames - 1;
    let sum = 0;
    for (let frame = 0; frame < full; frame++) sum += values[frame * this.#bands + band] as number;
    const mean = sum / Math.max(1, full);
    let squares = 0;
    for (let frame = 0; frame < full; frame++) squares += ((values[frame * this.#bands + band] as number) - mean) ** 2;
    const deviation = Math.sqrt(squares / Math.max(1, full - 1)) + deviationFloor;
    for (let frame = 0; frame < full; frame++) {
      const at = frame * this.#bands + band;
      values[at] = ((values[at] as number) - mean) / deviation;
    }
    values[full * this.#bands + band] = 0;
  }
}
