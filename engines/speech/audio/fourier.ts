// Mixed-radix FFT of a fixed number of real values: transforms of the odd part of the length, combined by radix-2 stages.

export class FourierTransform {
  /** The values to transform; after run(), the real parts of the result. */
  readonly real: Float64Array;
  /** After run(), the imaginary parts of the result. */
  readonly imaginary: Float64Array;
  readonly #length: number;
  /** Length of the transforms from which the whole one is combined: the odd part of the length. */
  readonly #innerLength: number;
  readonly #stages: number;
  readonly #cosines: Float64Array;
  readonly #sines: Float64Array;
  readonly #otherReal: Float64Array;
  readonly #otherImaginary: Float64Array;

  /** `length`: number of values, a power of two times a small odd number. */
  constructor(length: number) {
    let inner = length;
    while (inner % 2 === 0) inner /= 2;
    this.#length = length;
    this.#innerLength = inner;
    this.#stages = Math.log2(length / inner);
    this.#cosines = Float64Array.from({ length }, (_, i) => Math.cos((2 * Math.PI * i) / length));
    this.#sines = Float64Array.from({ length }, (_, i) => -Math.sin((2 * Math.PI * i) / length));
    this.real = new Float64Array(length);
    this.imaginary = new Float64Array(length);
    this.#otherReal = new Float64Array(length);
    this.#otherImaginary = new Float64Array(length);
  }

  /** Transforms the values in `real`. The results are in `real` and `imaginary`. */
  run(): void {
    const groups = this.#length / this.#innerLength;
    for (let group = 0; group < groups; group++)
      this.#inner(reversed(group, this.#stages), group * this.#innerLength, groups);
    for (let length = this.#innerLength; length < this.#length; length *= 2) this.#combine(length);
    this.real.set(this.#otherReal);
    this.imaginary.set(this.#otherImaginary);
  }

  /**
   * Inner transform: reads `first`, `first + step`, … of `real`, and writes the results to `#otherReal` and `#otherImaginary` from index
   * `target` on.
   */
  #inner(first: number, target: number, step: number): void {
    const length = this.#innerLength;
    for (let k = 0; k < length; k++) {
      let [re, im] = [0, 0];
      for (let n = 0; n < length; n++) {
        const twiddle = ((k * n) % length) * step;
        const value = this.real[first + n * step] as number;
        re += value * (this.#cosines[twiddle] as number);
        im += value * (this.#sines[twiddle] as number);
      }
      this.#otherReal[target + k] = re;
      this.#otherImaginary[target + k] = im;
    }
  }

  /** Combines every two neighbouring transforms of `length` values into one transform of twice the length, in place. */
  #combine(length: number): void {
    const [re, im] = [this.#otherReal, this.#otherImaginary];
    const twiddles = this.#length / (2 * length);
    for (let start = 0; start < this.#length; start += 2 * length) {
      for (let k = 0; k < length; k++) {
        const [a, b] = [start + k, start + k + length];
        const [c, s] = [this.#cosines[k * twiddles] as number, this.#sines[k * twiddles] as number];
        const [br, bi] = [re[b] as number, im[b] as number];
        const [tr, ti] = [br * c - bi * s, br * s + bi * c];
        const [ar, ai] = [re[a] as number, im[a] as number];
        re[a] = ar + tr;
        im[a] = ai + ti;
        re[b] = ar - tr;
        im[b] = ai - ti;
      }
    }
  }
}

/** Returns the number whose `bits` bits are those of `value` in reverse order. */
function reversed(value: number, bits: number): number {
  let result = 0;
  for (let bit = 0; bit < bits; bit++) if (value & (1 << bit)) result |= 1 << (bits - 1 - bit);
  return result;
}
