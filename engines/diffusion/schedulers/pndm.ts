// PNDM scheduler with linear multistep steps only (PLMS): averages the outputs of up to four evaluations. The second timestep is
// evaluated twice, so that the second step can begin with two outputs.
import { checkSteps, type SchedulerConfig } from "./config.ts";
import { cumulativeAlphas, roundHalfEven, spacedTimesteps } from "./schedule.ts";
import { combine, type Mix, noiseMix, type Scheduler } from "./scheduler.ts";

/** Weights of the latest outputs, the newest first, by the number of outputs. */
const weights: readonly (readonly number[])[] = [
  [1],
  [3 / 2, -1 / 2],
  [23 / 12, -16 / 12, 5 / 12],
  [55 / 24, -59 / 24, 37 / 24, -9 / 24],
];

export function pndmScheduler(config: SchedulerConfig, steps: number): Scheduler {
  checkSteps(steps, config.trainTimesteps);
  const alphas = cumulativeAlphas(config);
  const spaced = spacedTimesteps(config, config.spacing ?? "leading", steps).map(roundHalfEven);
  const timesteps = steps === 1 ? spaced : [...spaced.slice(0, 2), ...spaced.slice(1)];
  const stride = Math.floor(config.trainTimesteps / steps);
  const last = (config.setAlphaToOne ?? false) ? 1 : (alphas[0] as number);
  const alphaAt = (timestep: number) =>
    timestep < 0 ? last : (alphas[Math.min(timestep, alphas.length - 1)] as number);
  /** Latest outputs, the newest first. */
  let outputs: Float32Array[] = [];
  /** Sample before the first step. The second evaluation repeats the first step from this sample. */
  let first: Float32Array | null = null;
  return {
    timesteps,
    initialScale: 1,
    inputScale: () => 1,
    takesNoise: () => false,
    step(index, output, sample) {
      const timestep = timesteps[index] as number;
      const repeats = index === 1;
      const [from, to] = repeats ? [timestep + stride, timestep] : [timestep, timestep - stride];
      if (index === 0) first = sample.slice();
      let average: Float32Array;
      if (repeats) {
        average = mean(output, outputs[0] as Float32Array);
        sample.set(first as Float32Array);
        first = null;
      } else {
        outputs = [output.slice(), ...outputs.slice(0, 3)];
        average = weighted(outputs);
      }
      combine(sample, transfer(config, alphaAt(from), alphaAt(to)), average);
    },
  };
}

function mean(one: Float32Array, other: Float32Array): Float32Array {
  return one.map((value, i) => (value + (other[i] as number)) / 2);
}

function weighted(outputs: readonly Float32Array[]): Float32Array {
  const factors = weights[outputs.length - 1] as readonly number[];
  return (outputs[0] as Float32Array).map((_, i) => {
    let sum = 0;
    for (let j = 0; j < outputs.length; j++)
      sum += (factors[j] as number) * ((outputs[j] as Float32Array)[i] as number);
    return sum;
  });
}

/** Returns formula (9) of the PNDM paper as a linear combination, for a step from signal power `now` to `next`. */
function transfer({ prediction }: SchedulerConfig, now: number, next: number): Mix {
  const noise = noiseMix(prediction, Math.sqrt(now), Math.sqrt(1 - now));
  const divisor = now * Math.sqrt(1 - next) + Math.sqrt(now * (1 - now) * next);
  const factor = -(next - now) / divisor;
  return { ofSample: Math.sqrt(next / now) + factor * noise.ofSample, ofOutput: factor * noise.ofOutput };
}
