// Scheduler contract: the arithmetic of the steps from noise to latents. A scheduler owns no model: the pipeline computes the model's
// output for each timestep and passes it to the scheduler. Coefficients are doubles; samples are 32-bit floats.

/** What the model's output means: the noise in the sample, the velocity, or the sample without noise. */
export type Prediction = "epsilon" | "v_prediction" | "sample";

/** Scheduler of the steps of one image. It keeps the outputs of earlier steps, so each image needs its own. */
export interface Scheduler {
  /** Timesteps of the model's evaluations, in order; fractions with Karras sigmas. */
  readonly timesteps: readonly number[];
  /** Standard deviation of the initial noise. */
  readonly initialScale: number;
  /** Returns the factor by which the sample is multiplied before evaluation `index` of the model. */
  inputScale(index: number): number;
  /** Returns whether evaluation `index` adds fresh noise. */
  takesNoise(index: number): boolean;
  /**
   * Replaces `sample` by the sample after evaluation `index`. `output`: the model's output. `noise`: numbers from the standard
   * normal distribution, null if takesNoise(index) is false. All have the same length.
   */
  step(index: number, output: Float32Array, sample: Float32Array, noise: Float32Array | null): void;
}

/** A linear combination of the sample and the model's output. */
export interface Mix {
  readonly ofSample: number;
  readonly ofOutput: number;
}

/**
 * Returns the combination that estimates the sample without noise, for a sample `signal` * x + `noise` * e with the noise e,
 * where the squares of `signal` and `noise` add up to 1.
 */
export function cleanMix(prediction: Prediction, signal: number, noise: number): Mix {
  if (prediction === "sample") return { ofSample: 0, ofOutput: 1 };
  if (prediction === "v_prediction") return { ofSample: signal, ofOutput: -noise };
  return { ofSample: 1 / signal, ofOutput: -noise / signal };
}

/** Returns the combination that estimates the noise, for a sample as in cleanMix. */
export function noiseMix(prediction: Prediction, signal: number, noise: number): Mix {
  if (prediction === "epsilon") return { ofSample: 0, ofOutput: 1 };
  if (prediction === "v_prediction") return { ofSample: noise, ofOutput: signal };
  return { ofSample: 1 / noise, ofOutput: -signal / noise };
}

/** Replaces `sample` by a * sample + b * output, plus c * noise if there is noise. */
export function combine(
  sample: Float32Array,
  { ofSample: a, ofOutput: b }: Mix,
  output: Float32Array,
  c = 0,
  noise: Float32Array | null = null,
): void {
  const { length } = sample;
  if (noise === null) {
    for (let i = 0; i < length; i++) sample[i] = a * (sample[i] as number) + b * (output[i] as number);
    return;
  }
  for (let i = 0; i < length; i++) {
    sample[i] = a * (sample[i] as number) + b * (output[i] as number) + c * (noise[i] as number);
  }
}
