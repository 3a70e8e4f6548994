// Mel filters: the triangular filters that turn the spectrum of a frame into bands, and the window of a frame.
import { sampleRate } from "./audio-window.ts";

/** Scale on which the bands have equal distances. */
interface MelScale {
  melOf(hertz: number): number;
  hertzOf(mel: number): number;
}

const linearEnd = 1000;
const linearStep = 200 / 3;
const logStep = Math.log(6.4) / 27;
const linearMels = linearEnd / linearStep;

/** Slaney's scale: linear up to 1000 Hz, logarithmic above. */
export const slaneyScale: MelScale = {
  melOf: (hertz) => (hertz < linearEnd ? hertz / linearStep : linearMels + Math.log(hertz / linearEnd) / logStep),
  hertzOf: (mel) => (mel < linearMels ? mel * linearStep : linearEnd * Math.exp((mel - linearMels) * logStep)),
};

/** HTK's scale, logarithmic. */
export const htkScale: MelScale = {
  melOf: (hertz) => 2595 * Math.log10(1 + hertz / 700),
  hertzOf: (mel) => 700 * (10 ** (mel / 2595) - 1),
};

interface FilterOptions {
  readonly bands: number;
  readonly fftLength: number;
  readonly scale: MelScale;
  /** Whether each filter has the area or the height 1. */
  readonly unit: "area" | "height";
}

/** Filter of a band: its first frequency bin, then one weight for each bin. */
interface MelFilter {
  readonly first: number;
  readonly weights: Float64Array;
}

export class MelFilters {
  readonly #filters: readonly MelFilter[];

  /** Filters from 0 Hz to half of the sample rate. */
  constructor({ bands, fftLength, scale, unit }: FilterOptions) {
    const highest = scale.melOf(sampleRate / 2);
    const edges = Array.from({ length: bands + 2 }, (_, i) => scale.hertzOf((i * highest) / (bands + 1)));
    this.#filters = Array.from({ length: bands }, (_, band) => {
      const [low, middle, high] = edges.slice(band, band + 3) as [number, number, number];
      const height = unit === "area" ? 2 / (high - low) : 1;
      const all = Array.from({ length: fftLength / 2 + 1 }, (_, bin) => {
        const hertz = (bin * sampleRate) / fftLength;
        return height * Math.max(0, Math.min((hertz - low) / (middle - low), (high - hertz) / (high - middle)));
      });
      const first = Math.max(
        0,
        all.findIndex((weight) => weight > 0),
      );
      const last = all.findLastIndex((weight) => weight > 0);
      return { first, weights: Float64Array.from(all.slice(first, last + 1)) };
    });
  }

  /** Returns the sum of the spectrum's bins in a band, each times its weight. */
  apply(band: number, spectrum: Float64Array): number {
    const { first, weights } = this.#filters[band] as MelFilter;
    let sum = 0;
    for (let k = 0; k < weights.length; k++) sum += (weights[k] as number) * (spectrum[first + k] as number);
    return sum;
  }
}

/** Returns a Hann window. A periodic one is the beginning of a symmetric one that is longer by one value. */
export function hannWindow(length: number, form: "periodic" | "symmetric" = "periodic"): Float64Array {
  const period = form === "periodic" ? length : length - 1;
  return Float64Array.from({ length }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / period));
}
