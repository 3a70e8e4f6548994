// Simulation of speculative decoding: the speed with drafts divided by the speed without drafts. The step time model and the
// plan for the draft length are the real code. The step durations were measured on engines.
import { table } from "../../cli/bench/report.ts";
import { StepTimeModel } from "../../engines/decoding/scheduler/step-time-model.ts";
import { DepthPlan } from "../../engines/decoding/speculation/depth.ts";

const steps = 4000;
const stepsPerLoad = 150;
const maxDecodeTokens = 96;
const maxDepth = 16;
const limits = { maxSequences: 64, maxDepth, maxDecodeTokens };
const chances = [0.3, 0.5, 0.7, 0.9];
const loads = [1, 2, 4, 8];

/**
 * Step times, interpolated linearly. They come from the results of `bench engine`, except for the last engine, which is
 * invented.
 */
const engines: Readonly<Record<string, readonly (readonly [tokens: number, ms: number])[]>> = {
  "llama Q4_1": [
    [1, 6.1],
    [8, 29],
    [32, 86.8],
  ],
  "llama Q8_0": [
    [1, 6.4],
    [8, 29.7],
    [32, 54.4],
  ],
  "wasm Q8_0": [
    [1, 5.1],
    [8, 13.5],
    [32, 40.1],
  ],
  "wasm Q4_1": [
    [1, 3.5],
    [8, 17.8],
    [32, 64.8],
  ],
  "flat to 8": [
    [1, 20],
    [8, 21],
    [32, 60],
  ],
};

/**
 * Table with a row for each engine and a column for each probability that a drafted token is accepted. Each cell is the
 * geometric mean of the speed ratios over all loads.
 */
export function draftsTable(): string {
  const rows = Object.entries(engines).map(([name, points]) => {
    const stepMs = (tokens: number) => interpolate(points, tokens);
    const gains = chances.map((chance) => {
      const ratios = loads.map(
        (load) => tokensPerMs(load, chance, stepMs, maxDepth) / tokensPerMs(load, chance, stepMs, 0),
      );
      return Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
    });
    return [name, ...gains.map((gain) => gain.toFixed(3))];
  });
  return table(["tokens over no drafts", ...chances.map((chance) => `${chance} right`)], rows);
}

/**
 * Simulates up to 2 x `load` sequences and returns the tokens per millisecond. The number of sequences changes every
 * `stepsPerLoad` steps. On average, one step in a hundred takes three times as long.
 */
function tokensPerMs(load: number, chance: number, stepMs: (tokens: number) => number, room: number): number {
  const random = seeded(7);
  const cost = new StepTimeModel(maxDecodeTokens, { decodeSlowdown: 3, maxStepMs: 250 });
  const plan = new DepthPlan(cost, limits, () => 0);
  let sequences = load;
  let ms = 0;
  let made = 0;
  for (let step = 0; step < steps; step++) {
    if (step % stepsPerLoad === 0) sequences = 1 + Math.floor(random() * (2 * load - 1));
    plan.clear();
    for (let i = 0; i < sequences; i++) plan.add({ chance: () => chance }, room, false);
    plan.choose(sequences);
    let tokens = sequences;
    for (const depth of plan.depths.subarray(0, sequences)) {
      tokens += depth;
      made++;
      for (let i = 0; i < depth && random() < chance; i++) made++;
    }
    const tookMs = stepMs(tokens) * (0.95 + 0.1 * random()) * (random() < 0.01 ? 3 : 1);
    cost.observe(tokens, 0, tookMs);
    ms += tookMs;
  }
  return made / ms;
}

function interpolate(points: readonly (readonly [number, number])[], tokens: number): number {
  const at = Math.max(
    points.slice(0, -1).findLastIndex(([from]) => from <= tokens),
    0,
  );
  const [[x0, y0] = [0, 0], [x1, y1] = [1, 0]] = points.slice(at, at + 2);
  return y0 + ((y1 - y0) * (tokens - x0)) / (x1 - x0);
}

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
