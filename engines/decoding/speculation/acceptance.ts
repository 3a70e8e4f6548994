// Acceptance: estimates how often drafted tokens are right, by level (0 and up). A level is a range of match lengths,
// or a position in a draft. The statistics of the sequence count most, then the statistics of all sequences, then a
// prior.

/** Approximate number of recent attempts that count in the statistics of one sequence, and of all sequences. */
const ownTries = 32;
const sharedTries = 512;
/** The statistics of all sequences count as much as this number of attempts of the sequence itself. */
const sharedWeight = 4;
/** The prior (the assumed chance) counts as much as this number of attempts of all sequences. */
const priorWeight = 8;

class Tally {
  readonly #hits: Float64Array;
  readonly #tries: Float64Array;
  readonly #decay: number;

  constructor(levels: number, triesThatCount: number) {
    this.#hits = new Float64Array(levels);
    this.#tries = new Float64Array(levels);
    this.#decay = 1 - 1 / triesThatCount;
  }

  add(level: number, isHit: boolean): void {
    this.#hits[level] = (this.#hits[level] as number) * this.#decay + (isHit ? 1 : 0);
    this.#tries[level] = (this.#tries[level] as number) * this.#decay + 1;
  }

  /** Returns the hit rate of a level, smoothed with `weight` assumed attempts whose hit rate is `otherwise`. */
  share(level: number, otherwise: number, weight: number): number {
    return ((this.#hits[level] as number) + weight * otherwise) / ((this.#tries[level] as number) + weight);
  }
}

/** Acceptance statistics over all sequences of a model. */
export class SharedAcceptance {
  readonly #priors: readonly number[];
  readonly #tally: Tally;

  /**
   * `priors`: assumed probability that a draft of each level is accepted, used until drafts of that level have been
   * verified.
   */
  constructor(priors: readonly number[]) {
    this.#priors = priors;
    this.#tally = new Tally(priors.length, sharedTries);
  }

  get levels(): number {
    return this.#priors.length;
  }

  chance(level: number): number {
    return this.#tally.share(level, this.#priors[level] as number, priorWeight);
  }

  learn(level: number, isHit: boolean): void {
    this.#tally.add(level, isHit);
  }
}

/** Acceptance statistics of one sequence. */
export class Acceptance {
  readonly #shared: SharedAcceptance;
  readonly #tally: Tally;

  constructor(shared: SharedAcceptance) {
    this.#shared = shared;
    this.#tally = new Tally(shared.levels, ownTries);
  }

  /** Chance that a token drafted at this level is the token that is sampled. */
  chance(level: number): number {
    return this.#tally.share(level, this.#shared.chance(level), sharedWeight);
  }

  learn(level: number, isHit: boolean): void {
    this.#tally.add(level, isHit);
    this.#shared.learn(level, isHit);
  }
}
