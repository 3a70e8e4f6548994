// DPM-Solver++ of first and second order (multistep): each step estimates the sample without noise. The second order also uses the
// estimate of the previous step.
import { checkSteps, type SchedulerConfig } from "./config.ts";
import {
  cumulativeAlphas,
  descending,
  karrasSigmas,
  roundHalfEven,
  sigmaOf,
  sigmasAt,
  spacedTimesteps,
  timestepOf,
} from "./schedule.ts";
import { cleanMix, type Scheduler } from "./scheduler.ts";

/** If an image has fewer steps than this, its last step is of first order (`lower_order_final`). */
const fewSteps = 15;

export function dpmSolver(config: SchedulerConfig, steps: number, isKarras: boolean): Scheduler {
  checkSteps(steps, config.trainTimesteps);
  const alphas = cumulativeAlphas(config);
  const { timesteps, sigmas } = noiseLevels(config, steps, isKarras, alphas);
  sigmas.push(config.finalSigma === "zero" ? 0 : sigmaOf(alphas[0] as number));
  const endsLow = config.eulerAtFinal || (config.lowerOrderFinal && steps < fewSteps) || config.finalSigma === "zero";
  let earlier: Float32Array | null = null;
  let latest: Float32Array | null = null;
  return {
    timesteps,
    initialScale: 1,
    inputScale: () => 1,
    takesNoise: () => false,
    step(index, output, sample) {
      [earlier, latest] = [latest, earlier ?? new Float32Array(sample.length)];
      const from = levelOf(sigmas[index] as number);
      const to = levelOf(sigmas[index + 1] as number);
      const { ofSample, ofOutput } = cleanMix(config.prediction, from.signal, from.noise);
      for (let i = 0; i < sample.length; i++) {
        latest[i] = ofSample * (sample[i] as number) + ofOutput * (output[i] as number);
      }
      const isFirst = config.solverOrder === 1 || earlier === null || (endsLow && index === steps - 1);
      const before = isFirst ? null : levelOf(sigmas[index - 1] as number);
      const ratio = to.noise / from.noise;
      const h = to.lambda - from.lambda;
      const gain = -to.signal * Math.expm1(-h);
      if (before === null || earlier === null) {
        for (let i = 0; i < sample.length; i++) {
          sample[i] = ratio * (sample[i] as number) + gain * (latest[i] as number);
        }
        return;
      }
      const slope = h / (from.lambda - before.lambda);
      const curve =
        config.solverType === "midpoint" ? 0.5 * gain * slope : to.signal * (Math.expm1(-h) / h + 1) * slope;
      for (let i = 0; i < sample.length; i++) {
        const [now, then] = [latest[i] as number, earlier[i] as number];
        sample[i] = ratio * (sample[i] as number) + gain * now + curve * (now - then);
      }
    },
  };
}

interface NoiseLevels {
  readonly timesteps: readonly number[];
  readonly sigmas: number[];
}

function noiseLevels(config: SchedulerConfig, steps: number, isKarras: boolean, alphas: Float64Array): NoiseLevels {
  if (isKarras) {
    const [least, most] = [sigmaOf(alphas[0] as number), sigmaOf(alphas.at(-1) as number)];
    const sigmas = karrasSigmas(least, most, steps);
    const exact = sigmas.map((sigma) => timestepOf(sigma, alphas));
    const timesteps = config.betaSchedule === "squaredcos_cap_v2" ? exact.map(Math.floor) : exact.map(roundHalfEven);
    return { timesteps, sigmas };
  }
  const timesteps = spacedWithoutFirst(config, steps);
  return { timesteps, sigmas: sigmasAt(timesteps, alphas) };
}

/** Returns the timesteps. In contrast to other schedulers, timestep 0 is left out. */
function spacedWithoutFirst(config: SchedulerConfig, steps: number): number[] {
  const { spacing, trainTimesteps, stepsOffset } = config;
  if (spacing === "trailing") return spacedTimesteps(config, spacing, steps);
  if (spacing === "leading") {
    const stride = Math.floor(trainTimesteps / (steps + 1));
    return Array.from({ length: steps }, (_, step) => (steps - step) * stride + stepsOffset);
  }
  return descending(0, trainTimesteps - 1, steps + 1)
    .slice(0, -1)
    .map(roundHalfEven);
}

interface Level {
  readonly signal: number;
  readonly noise: number;
  /** Logarithm of the ratio of signal to noise amplitude. */
  readonly lambda: number;
}

function levelOf(sigma: number): Level {
  const signal = 1 / Math.hypot(sigma, 1);
  return { signal, noise: sigma * signal, lambda: -Math.log(sigma) };
}
