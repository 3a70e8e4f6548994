// Owns how often drafted tokens turn out right, by how good a sign there was for them (a level, 0 and up: the length of a
// match, or the place in a draft). What a sequence has shown counts most, before that what all have, before that a prior.

/** How many of the newest tries count, roughly. */
const ownTries = 32;
const sharedTries = 512;
/** As many tries of a sequence of its own weigh as much as what all have shown, and as many of all as the prior. */
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

  /** The share of hits, `weight` of further tries taken to be `otherwise`. */
  share(level: number, otherwise: number, weight: number): number {
    return ((this.#hits[level] as number) + weight * otherwise) / ((this.#tries[level] as number) + weight);
  }
}

/** What all sequences of a model have shown. */
export class SharedAcceptance {
  readonly #priors: readonly number[];
  readonly #tally: Tally;

  /** `priors` has the chance at each level while nothing is known. */
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

/** What one sequence has shown. */
export class Acceptance {
  readonly #shared: SharedAcceptance;
  readonly #tally: Tally;

  constructor(shared: SharedAcceptance) {
    this.#shared = shared;
    this.#tally = new Tally(shared.levels, ownTries);
  }

  /** Chance that a token drafted at this level is what is sampled. */
  chance(level: number): number {
    return this.#tally.share(level, this.#shared.chance(level), sharedWeight);
  }

  learn(level: number, isHit: boolean): void {
    this.#tally.add(level, isHit);
    this.#shared.learn(level, isHit);
  }
}
