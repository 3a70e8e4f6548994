// Resampler: changes the sample rate of mono audio, piece by piece, with a windowed sinc filter.

/** Number of zero crossings of the filter on each side. */
const lobes = 16;
/** Maximum number of filters (phases). Positions between two phases are rounded. */
const maxPhases = 1024;

export class Resampler {
  readonly #from: number;
  readonly #to: number;
  /** One filter per phase: weights of the samples around a position. */
  readonly #filters: readonly Float32Array[];
  readonly #reach: number;
  /** Input that later output needs; it begins with sample number `#start`. */
  #kept: Float32Array;
  #start: number;
  #received = 0;
  /** Index of the next output sample. */
  #next = 0;

  constructor(from: number, to: number) {
    this.#from = from;
    this.#to = to;
    const cutoff = Math.min(1, to / from);
    this.#reach = Math.ceil(lobes / cutoff);
    const phases = Math.min(to / greatestDivisor(from, to), maxPhases);
    this.#filters = Array.from({ length: phases }, (_, phase) => filterOf(phase / phases, cutoff, this.#reach));
    this.#kept = new Float32Array(this.#reach);
    this.#start = -this.#reach;
  }

  /** Adds samples. Returns the output that is complete. */
  push(samples: Float32Array): Float32Array {
    if (this.#from === this.#to) return samples;
    const joined = new Float32Array(this.#kept.length + samples.length);
    joined.set(this.#kept);
    joined.set(samples, this.#kept.length);
    this.#kept = joined;
    this.#received += samples.length;
    return this.#output(this.#received - this.#reach);
  }

  /** Returns the output that is left after the last sample. */
  end(): Float32Array {
    if (this.#from === this.#to) return new Float32Array(0);
    const total = this.#received;
    const joined = new Float32Array(this.#kept.length + 2 * this.#reach);
    joined.set(this.#kept);
    this.#kept = joined;
    return this.#output(total);
  }

  /** Computes the output whose position is before input sample `end`. */
  #output(end: number): Float32Array {
    const count = Math.max(0, Math.ceil((end * this.#to) / this.#from) - this.#next);
    const output = new Float32Array(count);
    const phases = this.#filters.length;
    for (let i = 0; i < count; i++) {
      const position = ((this.#next + i) * this.#from) / this.#to;
      let whole = Math.floor(position);
      let phase = Math.round((position - whole) * phases);
      if (phase === phases) {
        phase = 0;
        whole++;
      }
      const filter = this.#filters[phase] as Float32Array;
      const first = whole - this.#reach + 1 - this.#start;
      let sum = 0;
      for (let k = 0; k < filter.length; k++) sum += (filter[k] as number) * (this.#kept[first + k] ?? 0);
      output[i] = sum;
    }
    this.#next += count;
    const needed = Math.floor((this.#next * this.#from) / this.#to) - this.#reach;
    if (needed > this.#start) {
      this.#kept = this.#kept.slice(needed - this.#start);
      this.#start = needed;
    }
    return output;
  }
}

/** Returns the weights of 2 * reach samples around a position that is `offset` (0..1) after a sample. */
function filterOf(offset: number, cutoff: number, reach: number): Float32Array {
  const filter = new Float32Array(2 * reach);
  let sum = 0;
  for (let k = 0; k < filter.length; k++) {
    const x = k - reach + 1 - offset;
    const angle = Math.PI * x * cutoff;
    const window = Math.abs(x) < reach ? 0.5 + 0.5 * Math.cos((Math.PI * x) / reach) : 0;
    filter[k] = (Math.abs(angle) < 1e-9 ? 1 : Math.sin(angle) / angle) * window;
    sum += filter[k] as number;
  }
  return filter.map((weight) => weight / sum);
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

/** Returns audio at another sample rate. */
export function resampled(samples: Float32Array, from: number, to: number): Float32Array {
  if (from === to) return samples;
  const resampler = new Resampler(from, to);
  const [body, tail] = [resampler.push(samples), resampler.end()];
  const whole = new Float32Array(body.length + tail.length);
  whole.set(body);
  whole.set(tail, body.length);
  return whole;
}
