// DrafterRecord: statistics of how often a drafter's tokens were right for one sequence, by position in
// the draft. Used by Speculation.
import { Acceptance, SharedAcceptance } from "./acceptance.ts";
import type { DraftSource } from "./depth.ts";

/**
 * Assumed chance, before any attempt, that the token at each position is right if all tokens before it are right. Later
 * positions have the last value.
 */
const priors = [0.7, 0.7, 0.7, 0.7, 0.65, 0.65, 0.6, 0.6];

/** Creates the statistics of the drafter over all sequences of a model. */
export function sharedDrafterAcceptance(): SharedAcceptance {
  return new SharedAcceptance(priors);
}

export class DrafterRecord implements DraftSource {
  readonly #acceptance: Acceptance;

  constructor(shared: SharedAcceptance) {
    this.#acceptance = new Acceptance(shared);
  }

  chance(position: number): number {
    return this.#acceptance.chance(levelOf(position));
  }

  /**
   * Learns from a verified draft, whose first `accepted` tokens were right. Tokens after the first wrong token are
   * ignored.
   */
  learn(drafted: number, accepted: number): void {
    const verified = Math.min(accepted + 1, drafted);
    for (let place = 0; place < verified; place++) this.#acceptance.learn(levelOf(place), place < accepted);
  }
}

function levelOf(place: number): number {
  return Math.min(place, priors.length - 1);
}
