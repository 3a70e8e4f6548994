// Search for the best candidate by successive halving: all candidates are measured briefly, and the better half of them again
// and longer. In each round the candidates alternate, so that other load on the machine affects all. Last come other numbers of
// threads for the best ones.
import type { TuneProfile } from "../../../actors/api/tuning.ts";
import { toErrorRecord } from "../../../runtime/errors.ts";
import type { Candidate } from "./candidates.ts";
import { scoreOf } from "./score.ts";

export interface SearchOptions {
  readonly candidates: readonly Candidate[];
  readonly profile: TuneProfile;
  /** Returns the same candidate with other numbers of threads. */
  variationsOf(candidate: Candidate): readonly Candidate[];
  /** Time at which no further measurement begins, on the clock of `nowMs`. */
  readonly deadlineMs: number;
  nowMs(): number;
  /** Called before each measurement with the done and the expected number of measurements. */
  onProgress(done: number, total: number): void;
}

export interface SearchFindings {
  /** All candidates with speeds, the best first. */
  readonly measured: readonly Candidate[];
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

export async function search(options: SearchOptions): Promise<SearchFindings> {
  const run = new Search(options);
  const [brief, longer, long] = repetitions;
  let kept = await run.round(options.candidates, brief);
  kept = await run.round(run.better(kept), longer);
  const variations = kept.slice(0, varied).flatMap((candidate) => options.variationsOf(candidate));
  kept = run.better([...kept, ...(await run.round(variations, longer))]);
  await run.round(kept, long);
  for (const candidate of run.all) candidate.dispose();
  return { measured: run.sorted(run.all), warnings: run.warnings, isCut: run.isCut };
}

class Search {
  readonly warnings: string[] = [];
  /** Candidates that ran. */
  readonly all = new Set<Candidate>();
  isCut = false;
  readonly #options: SearchOptions;
  /** Longest time of a measurement in each engine, with the load before it. */
  readonly #longestMs = new Map<string, number>();
  #done = 0;

  constructor(options: SearchOptions) {
    this.#options = options;
  }

  /** Measures the candidates in turn. Returns those that ran, the best first. */
  async round(candidates: readonly Candidate[], count: number): Promise<Candidate[]> {
    const failed = new Set<Candidate>();
    for (let repetition = 0; repetition < count; repetition++) {
      // The order is reversed in each repetition, so that none always follows the same one.
      for (const candidate of repetition % 2 === 0 ? candidates : candidates.toReversed()) {
        if (failed.has(candidate) || !(await this.#measure(candidate))) failed.add(candidate);
      }
    }
    return this.sorted(candidates.filter((candidate) => candidate.speeds !== null));
  }

  /** Returns the better half, and frees the memory of the others. */
  better(candidates: readonly Candidate[]): Candidate[] {
    const sorted = this.sorted(candidates);
    const count = Math.max(leastKept, Math.ceil(sorted.length / 2));
    for (const other of sorted.slice(count)) other.dispose();
    return sorted.slice(0, count);
  }

  sorted(candidates: Iterable<Candidate>): Candidate[] {
    const { profile } = this.#options;
    const score = ({ variant: { quality }, speeds }: Candidate) =>
      speeds === null ? Number.NEGATIVE_INFINITY : scoreOf({ quality, speeds }, profile);
    return [...candidates].sort((one, other) => score(other) - score(one));
  }

  /** Returns false if the candidate cannot be measured. */
  async #measure(candidate: Candidate): Promise<boolean> {
    const { deadlineMs, nowMs, onProgress, candidates } = this.#options;
    const { engine, variant } = candidate;
    const startMs = nowMs();
    // One candidate is always measured, however short the time is.
    if (startMs + (this.#longestMs.get(engine) ?? 0) >= deadlineMs && this.all.size > 0) {
      this.isCut = true;
      return candidate.speeds !== null;
    }
    const [brief, longer, long] = repetitions;
    onProgress(this.#done++, candidates.length * (brief + longer / 2) + leastKept * (longer + long));
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
