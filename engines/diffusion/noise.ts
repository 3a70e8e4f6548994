// Gaussian noise from a seed: the same numbers on every machine. They are not those of torch for the same seed.
import { Random } from "../decoding/sampler/random.ts";

/** Source of numbers from the standard normal distribution. */
export interface NoiseSource {
  /** Returns the next `count` numbers. */
  next(count: number): Float32Array;
}

export class SeededNoise implements NoiseSource {
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(BigInt(seed));
  }

  /** Box-Muller transform: two numbers from two uniform ones. */
  next(count: number): Float32Array {
    const numbers = new Float32Array(count);
    for (let i = 0; i < count; i += 2) {
      const radius = Math.sqrt(-2 * Math.log(1 - this.#random.next()));
      const angle = 2 * Math.PI * this.#random.next();
      numbers[i] = radius * Math.cos(angle);
      if (i + 1 < count) numbers[i + 1] = radius * Math.sin(angle);
    }
    return numbers;
  }
}
