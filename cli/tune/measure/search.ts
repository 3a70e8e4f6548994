// Search for the best candidate by successive halving. The first round measures one variant in each engine with several numbers
// of threads. The second round measures the other variants, with the best number of threads of each engine. The better half of
// all candidates is then measured longer. Next, other numbers of threads are tried for the best candidates, and the better half
// is measured once more. Within a round the candidates alternate, so that other load on the machine affects all of them
// equally.
import type { TuneProfile, TuneQuality, TuneSpeeds } from "../../../actors/api/tuning.ts";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { scoreOf } from "./score.ts";

/** The properties of a candidate (candidates.ts) that the search uses. */
export interface Measured {
  readonly engine: string;
  readonly variant: { readonly typeName: string; readonly quality: TuneQuality };
  /** Measured speeds; null if not measured yet. */
  readonly speeds: TuneSpeeds | null;
  measure(): Promise<void>;
  dispose(): void;
}

export interface SearchOptions<C extends Measured> {
  /** Candidates of the first round: one variant of the model in each engine, with each number of threads. */
  readonly firsts: readonly C[];
  readonly profile: TuneProfile;
  /** Returns candidates with other variants, and with the same engine and number of threads. */
  othersOf(candidate: C): readonly C[];
  /** Returns candidates that differ only in the number of threads, and are not measured yet. */
  variationsOf(candidate: C): readonly C[];
  /** Expected number of candidates, for the progress display. */
  readonly expected: number;
  /** Time at which no further measurement begins, on the clock of `nowMs`. */
  readonly deadlineMs: number;
  nowMs(): number;
  /** Called before each measurement with the number of completed measurements and the expected total. */
  onProgress(done: number, total: number): void;
}

export interface SearchFindings<C> {
  /** All candidates that were measured, best first. */
  readonly measured: readonly C[];
  readonly warnings: readonly string[];
  /** Whether the search ended at the deadline, before all rounds were complete. */
  readonly isCut: boolean;
}

/** Numbers of measurements of each candidate in brief, longer and long rounds. */
const repetitions = [2, 3, 6] as const;
/** Minimum number of candidates that are kept after a round. */
const leastKept = 3;
/** Number of best candidates for which other numbers of threads are tried. */
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
  /** Candidates with at least one successful measurement. */
  readonly all = new Set<C>();
  isCut = false;
  readonly #options: SearchOptions<C>;
  /** Longest time in ms of a measurement in each engine, including the loading before it. */
  readonly #longestMs = new Map<string, number>();
  #done = 0;

  constructor(options: SearchOptions<C>) {
    this.#options = options;
  }

  /** Measures each candidate `count` times, in turn. Returns the candidates that were measured, best first. */
  async round(candidates: readonly C[], count: number): Promise<C[]> {
    const failed = new Set<C>();
    for (let repetition = 0; repetition < count; repetition++) {
      // The order is reversed in each repetition, so that no candidate always follows the same other candidate.
      for (const candidate of repetition % 2 === 0 ? candidates : candidates.toReversed()) {
        if (failed.has(candidate) || !(await this.#measure(candidate))) failed.add(candidate);
      }
    }
    return this.sorted(candidates.filter((candidate) => candidate.speeds !== null));
  }

  /** Returns the better half of the candidates, and frees the memory of the other half. */
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

  /** Measures a candidate once. Returns false if it cannot be measured. */
  async #measure(candidate: C): Promise<boolean> {
    const { deadlineMs, nowMs, onProgress } = this.#options;
    const { engine, variant } = candidate;
    const startMs = nowMs();
    // At least one candidate is measured, even if the deadline is too early.
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
