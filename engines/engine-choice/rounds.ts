// Rounds of a trial: the order in which the engines are timed, and the end of the trial. In a round each engine runs
// each workload once; the engines alternate, so that other load on the machine affects both.
import type { EngineName } from "../engine.ts";
import { timeRatio } from "./figures.ts";
import { listed, type Speeds, speedsOf, type Workload, type Workloads } from "./workloads.ts";

export interface TimedEngine {
  /** Runs the workload once and returns the milliseconds of its shortest step. */
  run(workload: Workload): number;
}

export interface RoundLimits {
  /** Minimum duration in milliseconds, after which a trial ends if one engine is clearly faster. */
  readonly clearMs: number;
  /** Duration in milliseconds after which a trial ends even if the engines are equally fast. */
  readonly closeMs: number;
}

const leastRounds = 3;
/**
 * Milliseconds after which a trial ends, even if only the first round is complete. A round takes this long if the
 * model's layers are large or the machine is busy.
 */
const slowMs = 3000;
/**
 * Two engines are close if the times per new token differ by less than this factor. Single rounds differ by up to 10 %.
 */
const closeFactor = 1.1;

/** Measures both engines until one is clearly faster or the time limit is reached. `nowMs` is the clock. */
export function timeInRounds(
  engines: Readonly<Record<EngineName, TimedEngine>>,
  workloads: Workloads,
  { clearMs, closeMs }: RoundLimits,
  nowMs: () => number,
): Record<EngineName, Speeds> {
  const startMs = nowMs();
  const times = { wasm: new BestTimes(), llama: new BestTimes() };
  const speeds = () => ({
    wasm: speedsOf(workloads, (workload) => times.wasm.of(workload)),
    llama: speedsOf(workloads, (workload) => times.llama.of(workload)),
  });
  const isEnough = (rounds: number, elapsedMs: number): boolean => {
    if (rounds < leastRounds || elapsedMs < clearMs) return false;
    return elapsedMs >= closeMs || !isClose(speeds());
  };
  for (let round = 0; ; round++) {
    // The order changes with each round, so that each engine runs first in half of the rounds.
    const order: EngineName[] = round % 2 === 0 ? ["wasm", "llama"] : ["llama", "wasm"];
    for (const workload of listed(workloads)) {
      for (const name of order) times[name].add(workload, engines[name].run(workload));
    }
    const elapsedMs = nowMs() - startMs;
    if (elapsedMs >= slowMs || isEnough(round, elapsedMs)) return speeds();
    // Discards the first round's times, because that round compiles code and faults in memory pages.
    if (round === 0) for (const name of order) times[name].clear();
  }
}

function isClose(speeds: Readonly<Record<EngineName, Speeds>>): boolean {
  const ratio = timeRatio(speeds);
  return ratio < closeFactor && ratio > 1 / closeFactor;
}

/**
 * Shortest time of each workload. The shortest is used, because other load on the machine can only make a run longer.
 */
class BestTimes {
  readonly #bestMs = new Map<Workload, number>();

  add(workload: Workload, ms: number): void {
    this.#bestMs.set(workload, Math.min(ms, this.of(workload)));
  }

  clear(): void {
    this.#bestMs.clear();
  }

  of(workload: Workload): number {
    return this.#bestMs.get(workload) ?? Number.POSITIVE_INFINITY;
  }
}
