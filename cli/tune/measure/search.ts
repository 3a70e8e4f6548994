// Search for the best candidate by successive halving. The first candidates differ in the engine and the number of threads. With the
// best number of threads of each engine, the other number types are measured briefly, and the better half of all again and longer.
// In each round the candidates alternate, so that other load on the machine affects all. Last come other numbers of threads for
// the best ones.
import type { TuneProfile, TuneQuality, TuneSpeeds } from "../../../actors/api/tuning.ts";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { scoreOf } from "./score.ts";

/** What the search needs of a candidate (candidates.ts). */
export interface Measured {
  readonly engine: string;
  readonly variant: { readonly typeName: string; readonly quality: TuneQuality };
  /** null: not measured yet. */
  readonly speeds: TuneSpeeds | null;
  measure(): Promise<void>;
  dispose(): void;
}

export interface SearchOptions<C extends Measured> {
  /** One variant of the model in each engine, with all numbers of threads. */
  readonly firsts: readonly C[];
  readonly profile: TuneProfile;
  /** Returns the other variants in the same engine, with the same number of threads. */
  othersOf(candidate: C): readonly C[];
  /** Returns the same candidate with other numbers of threads that are not measured yet. */
  variationsOf(candidate: C): readonly C[];
  /** Expected number of candidates, for the progress. */
  readonly expected: number;
  /** Time at which no further measurement begins, on the clock of `nowMs`. */
  readonly deadlineMs: number;
  nowMs(): number;
  /** Called before each measurement with the done and the expected number of measurements. */
  onProgress(done: number, total: number): void;
}

export interface SearchFindings<C> {
  /** All candidates with speeds, the best first. */
  readonly measured: readonly C[];
  readonly warnings: readonly string[];
  /** Whether the time was up before all rounds were done. */
  readonly isCut: boolean;
}

/** Measurements of a candidate in each round. */
const repetitions = [2, 3, 6] as const;
/** Candidates that are always kept in a round. */
const leastKept = 3;
/** Candidates whose numbers of threads are varied. */
const varied = 2;

export async function search<C extends Measured>(options: SearchOptions<C>): Promise<SearchFindings<C>> {
  const run = new Search(options);
  const [brief, longer, long] = repetitions;
  const firsts = await run.round(options.firsts, brief);
  const best = firsts.filter(({ engine }, i) => firsts.findIndex((other) => other.engine === engine) === i);
  const others = await run.round(
    best.flatMap((candidate) => options.othersOf(candidate)),
    brief,
  );
  let kept = await run.round(run.better([...firsts, ...others]), longer);
  const variations = kept.slice(0, varied).flatMap((candidate) => options.variationsOf(candidate));
  kept = run.better([...kept, ...(await run.round(variations, longer))]);
  await run.round(kept, long);
  for (const candidate of run.all) candidate.dispose();
  return { measured: run.sorted(run.all), warnings: run.warnings, isCut: run.isCut };
}

class Search<C extends Measured> {
  readonly warnings: string[] = [];
  /** Candidates that ran. */
  readonly all = new Set<C>();
  isCut = false;
  readonly #options: SearchOptions<C>;
  /** Longest time of a measurement in each engine, with the load before it. */
  readonly #longestMs = new Map<string, number>();
  #done = 0;

  constructor(options: SearchOptions<C>) {
    this.#options = options;
  }

  /** Measures the candidates in turn. Returns those that ran, the best first. */
  async round(candidates: readonly C[], count: number): Promise<C[]> {
    const failed = new Set<C>();
    for (let repetition = 0; repetition < count; repetition++) {
      // The order is reversed in each repetition, so that none always follows the same one.
      for (const candidate of repetition % 2 === 0 ? candidates : candidates.toReversed()) {
        if (failed.has(candidate) || !(await this.#measure(candidate))) failed.add(candidate);
      }
    }
    return this.sorted(candidates.filter((candidate) => candidate.speeds !== null));
  }

  /** Returns the better half, and frees the memory of the others. */
  better(candidates: readonly C[]): C[] {
    const sorted = this.sorted(candidates);
    const count = Math.max(leastKept, Math.ceil(sorted.length / 2));
    for (const other of sorted.slice(count)) other.dispose();
    return sorted.slice(0, count);
  }

  sorted(candidates: Iterable<C>): C[] {
    const { profile } = this.#options;
    const score = ({ variant: { quality }, speeds }: C) =>
      speeds === null ? Number.NEGATIVE_INFINITY : scoreOf({ quality, speeds }, profile);
    return [...candidates].sort((one, other) => score(other) - score(one));
  }

  /** Returns false if the candidate cannot be measured. */
  async #measure(candidate: C): Promise<boolean> {
    const { deadlineMs, nowMs, onProgress } = this.#options;
    const { engine, variant } = candidate;
    const startMs = nowMs();
    // One candidate is always measured, however short the time is.
    if (startMs + (this.#longestMs.get(engine) ?? 0) >= deadlineMs && this.all.size > 0) {
      this.isCut = true;
      return candidate.speeds !== null;
    }
    const [brief, longer, long] = repetitions;
    onProgress(this.#done++, this.#options.expected * (brief + longer / 2) + leastKept * (longer + long));
    try {
      await candidate.measure();
      this.all.add(candidate);
      return true;
    } catch (error) {
      this.warnings.push(`${engine} cannot run ${variant.typeName}: ${toErrorRecord(error).message}`);
      return false;
    } finally {
      this.#longestMs.set(engine, Math.max(this.#longestMs.get(engine) ?? 0, nowMs() - startMs));
    }
  }
}
