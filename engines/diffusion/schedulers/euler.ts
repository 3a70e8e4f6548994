// Euler schedulers. The plain scheduler follows the derivative to the next noise level. The ancestral scheduler follows it to a lower
// level, and adds fresh noise up to the next level.
import { checkSteps, type SchedulerConfig } from "./config.ts";
import { cumulativeAlphas, karrasSigmas, sigmaOf, sigmasAt, spacedTimesteps, timestepOf } from "./schedule.ts";
import { cleanMix, combine, type Mix, type Prediction, type Scheduler } from "./scheduler.ts";

export function eulerScheduler(config: SchedulerConfig, steps: number, isAncestral: boolean): Scheduler {
  checkSteps(steps, config.trainTimesteps);
  const alphas = cumulativeAlphas(config);
  const spacing = config.spacing ?? "linspace";
  const spaced = spacedTimesteps(config, spacing, steps);
  const plain = sigmasAt(spaced, alphas);
  const isKarras = config.karras && !isAncestral;
  const sigmas = isKarras ? karrasSigmas(plain.at(-1) as number, plain[0] as number, steps) : plain;
  const timesteps = isKarras ? sigmas.map((sigma) => timestepOf(sigma, alphas)) : spaced;
  const hasLast = config.finalSigma === "sigma_min" && !isAncestral;
  sigmas.push(hasLast ? sigmaOf(alphas[0] as number) : 0);
  const most = Math.max(...sigmas);
  return {
    timesteps,
    initialScale: spacing === "leading" ? Math.hypot(most, 1) : most,
    inputScale: (index) => 1 / Math.hypot(sigmas[index] as number, 1),
    takesNoise: () => isAncestral,
    step(index, output, sample, noise) {
      const [sigma, next] = [sigmas[index] as number, sigmas[index + 1] as number];
      const up = isAncestral ? Math.sqrt((next ** 2 * (sigma ** 2 - next ** 2)) / sigma ** 2) : 0;
      const down = isAncestral ? Math.sqrt(Math.max(0, next ** 2 - up ** 2)) : next;
      combine(sample, towards(config.prediction, sigma, down), output, up, noise);
    },
  };
}

/** Returns the linear combination that moves the sample from noise level `sigma` to `next`, along the derivative at `sigma`. */
function towards(prediction: Prediction, sigma: number, next: number): Mix {
  const signal = 1 / Math.hypot(sigma, 1);
  const clean = cleanMix(prediction, signal, sigma * signal);
  const share = (next - sigma) / sigma;
  // The sample here is x + sigma * e, with the sample without noise x and the noise e. cleanMix expects this sample multiplied by
  // `signal`.
  return { ofSample: 1 + share - share * clean.ofSample * signal, ofOutput: -share * clean.ofOutput };
}
