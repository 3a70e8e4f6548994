// DDIM scheduler, deterministic (eta 0): estimates the sample without noise, and adds the estimated noise at the next level.
import { checkSteps, type SchedulerConfig } from "./config.ts";
import { cumulativeAlphas, roundHalfEven, spacedTimesteps } from "./schedule.ts";
import { cleanMix, combine, noiseMix, type Scheduler } from "./scheduler.ts";

export function ddimScheduler(config: SchedulerConfig, steps: number): Scheduler {
  checkSteps(steps, config.trainTimesteps);
  const alphas = cumulativeAlphas(config);
  const timesteps = spacedTimesteps(config, config.spacing ?? "leading", steps).map(roundHalfEven);
  const stride = Math.floor(config.trainTimesteps / steps);
  const last = (config.setAlphaToOne ?? true) ? 1 : (alphas[0] as number);
  return {
    timesteps,
    initialScale: 1,
    inputScale: () => 1,
    takesNoise: () => false,
    step(index, output, sample) {
      const timestep = timesteps[index] as number;
      const now = alphas[Math.min(timestep, alphas.length - 1)] as number;
      const next = timestep - stride >= 0 ? (alphas[timestep - stride] as number) : last;
      const clean = cleanMix(config.prediction, Math.sqrt(now), Math.sqrt(1 - now));
      const noise = noiseMix(config.prediction, Math.sqrt(now), Math.sqrt(1 - now));
      const [signal, spread] = [Math.sqrt(next), Math.sqrt(1 - next)];
      const ofSample = signal * clean.ofSample + spread * noise.ofSample;
      combine(sample, { ofSample, ofOutput: signal * clean.ofOutput + spread * noise.ofOutput }, output);
    },
  };
}
