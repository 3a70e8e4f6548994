// Noise schedule: how much signal and noise a sample has at each timestep of the training, and which timesteps are used.
import type { SchedulerConfig } from "./config.ts";

/** Greatest beta of the cosine schedule. */
const mostBeta = 0.999;

/** Returns the product of (1 - beta) up to each timestep, which is the fraction of signal in the sample's power. */
export function cumulativeAlphas(config: SchedulerConfig): Float64Array {
  let product = 1;
  return Float64Array.from({ length: config.trainTimesteps }, (_, step) => {
    // Training rounds each beta and each product to 32 bits.
    product = Math.fround(product * Math.fround(1 - Math.fround(beta(config, step))));
    return product;
  });
}

function beta({ betaSchedule, betaStart, betaEnd, trainTimesteps }: SchedulerConfig, step: number): number {
  const position = trainTimesteps === 1 ? 0 : step / (trainTimesteps - 1);
  if (betaSchedule === "linear") return betaStart + (betaEnd - betaStart) * position;
  if (betaSchedule === "scaled_linear") {
    const [start, end] = [Math.sqrt(betaStart), Math.sqrt(betaEnd)];
    return (start + (end - start) * position) ** 2;
  }
  return Math.min(1 - cosineAlpha((step + 1) / trainTimesteps) / cosineAlpha(step / trainTimesteps), mostBeta);
}

function cosineAlpha(time: number): number {
  return Math.cos((((time + 0.008) / 1.008) * Math.PI) / 2) ** 2;
}

/** Returns the standard deviation of the noise relative to the signal. */
export function sigmaOf(alpha: number): number {
  return Math.sqrt((1 - alpha) / alpha);
}

/** Returns `steps` timesteps, the noisiest first. The spacing linspace yields fractions, which some schedulers round. */
export function spacedTimesteps(
  { trainTimesteps, stepsOffset }: SchedulerConfig,
  spacing: NonNullable<SchedulerConfig["spacing"]>,
  steps: number,
): number[] {
  if (spacing === "linspace") return descending(0, trainTimesteps - 1, steps);
  if (spacing === "leading") {
    const stride = Math.floor(trainTimesteps / steps);
    return Array.from({ length: steps }, (_, step) => (steps - 1 - step) * stride + stepsOffset);
  }
  const stride = trainTimesteps / steps;
  return Array.from({ length: steps }, (_, step) => roundHalfEven(trainTimesteps - step * stride) - 1);
}

/** Returns `count` numbers from `last` down to `first` at equal distances; only `first` if `count` is 1. */
export function descending(first: number, last: number, count: number): number[] {
  if (count === 1) return [first];
  return Array.from({ length: count }, (_, index) => first + ((last - first) * (count - 1 - index)) / (count - 1));
}

/** Rounds to the nearest integer, ties to even, as the training code does. */
export function roundHalfEven(value: number): number {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}

/** Returns the sigma at each timestep, interpolated between whole timesteps. */
export function sigmasAt(timesteps: readonly number[], alphas: Float64Array): number[] {
  return timesteps.map((timestep) => {
    const low = Math.min(Math.max(Math.floor(timestep), 0), alphas.length - 1);
    const high = Math.min(low + 1, alphas.length - 1);
    const [from, to] = [sigmaOf(alphas[low] as number), sigmaOf(alphas[high] as number)];
    return from + (to - from) * (timestep - low);
  });
}

const rho = 7;

/** Returns `steps` sigmas from `most` to `least` with the spacing of Karras et al. */
export function karrasSigmas(least: number, most: number, steps: number): number[] {
  const [start, end] = [most ** (1 / rho), least ** (1 / rho)];
  return Array.from({ length: steps }, (_, step) => {
    const position = steps === 1 ? 0 : step / (steps - 1);
    return (start + position * (end - start)) ** rho;
  });
}

/** Returns the timestep with a sigma, as a fraction between two timesteps. The logarithms are interpolated. */
export function timestepOf(sigma: number, alphas: Float64Array): number {
  const wanted = Math.log(Math.max(sigma, 1e-10));
  let low = 0;
  while (low < alphas.length - 2 && Math.log(sigmaOf(alphas[low + 1] as number)) <= wanted) low++;
  const from = Math.log(sigmaOf(alphas[low] as number));
  const to = Math.log(sigmaOf(alphas[low + 1] as number));
  return low + Math.min(1, Math.max(0, (from - wanted) / (from - to)));
}
