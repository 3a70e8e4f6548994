// LCM scheduler, for latent consistency models: each step estimates the sample without noise and adds fresh noise for the next
// level.
import { checkSteps, type SchedulerConfig } from "./config.ts";
import { cumulativeAlphas } from "./schedule.ts";
import { cleanMix, combine, type Scheduler } from "./scheduler.ts";

/** Standard deviation of the data, in the boundary conditions of consistency models. */
const dataDeviation = 0.5;

export function lcmScheduler(config: SchedulerConfig, steps: number): Scheduler {
  const { trainTimesteps, originalSteps, timestepScaling } = config;
  const original = Math.min(originalSteps, trainTimesteps);
  checkSteps(steps, original);
  const alphas = cumulativeAlphas(config);
  const stride = Math.floor(trainTimesteps / original);
  const timesteps = Array.from({ length: steps }, (_, step) => {
    return (original - Math.floor((step * original) / steps)) * stride - 1;
  });
  return {
    timesteps,
    initialScale: 1,
    inputScale: () => 1,
    takesNoise: (index) => index < steps - 1,
    step(index, output, sample, noise) {
      const timestep = timesteps[index] as number;
      const now = alphas[timestep] as number;
      const scaled = timestep * timestepScaling;
      const skip = dataDeviation ** 2 / (scaled ** 2 + dataDeviation ** 2);
      const out = scaled / Math.hypot(scaled, dataDeviation);
      const clean = cleanMix(config.prediction, Math.sqrt(now), Math.sqrt(1 - now));
      const isLast = index === steps - 1;
      const next = isLast ? 1 : (alphas[timesteps[index + 1] as number] as number);
      const signal = Math.sqrt(next);
      const mix = { ofSample: signal * (out * clean.ofSample + skip), ofOutput: signal * out * clean.ofOutput };
      combine(sample, mix, output, Math.sqrt(1 - next), noise);
    },
  };
}
