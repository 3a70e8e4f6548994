// Acceptance: how often drafted tokens turn out right, by level (0 and up): the length of a match, or the position in a
// draft. A sequence's own record counts most, then the record of all sequences, then a prior.

/** Number of latest attempts that count, roughly. */
const ownTries = 32;
const sharedTries = 512;
/**
 * This number of a sequence's own attempts weighs as much as the record of all; this number of all attempts weighs as
 * much as the prior.
 */
const sharedWeight = 4;
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

  /** The share of hits if `weight` further attempts had the share `otherwise`. */
  share(level: number, otherwise: number, weight: number): number {
    return ((this.#hits[level] as number) + weight * otherwise) / ((this.#tries[level] as number) + weight);
  }
}

/** The record of all sequences of a model. */
export class SharedAcceptance {
  readonly #priors: readonly number[];
  readonly #tally: Tally;

  /** `priors`: the chance at each level before any attempt. */
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

/** The record of one sequence. */
export class Acceptance {
  readonly #shared: SharedAcceptance;
  readonly #tally: Tally;

  constructor(shared: SharedAcceptance) {
    this.#shared = shared;
    this.#tally = new Tally(shared.levels, ownTries);
  }

  /** Chance that a token drafted at this level is sampled. */
  chance(level: number): number {
    return this.#tally.share(level, this.#shared.chance(level), sharedWeight);
  }

  learn(level: number, isHit: boolean): void {
    this.#tally.add(level, isHit);
    this.#shared.learn(level, isHit);
  }
}
