// Owns what the tokens of a drafter have been worth to one sequence, by their place in the draft. Used by Speculation.
import { Acceptance, SharedAcceptance } from "./acceptance.ts";
import type { DraftSource } from "./depth.ts";

/** Chances by place, each if those before it were right, while nothing is known; places behind the last are like it. */
const priors = [0.7, 0.7, 0.7, 0.7, 0.65, 0.65, 0.6, 0.6];

/** What all sequences of a model have shown of its drafter. */
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

  /** Of a draft's tokens the first `accepted` were right; what comes behind a wrong one says nothing. */
  learn(drafted: number, accepted: number): void {
    const verified = Math.min(accepted + 1, drafted);
    for (let place = 0; place < verified; place++) this.#acceptance.learn(levelOf(place), place < accepted);
  }
}

function levelOf(place: number): number {
  return Math.min(place, priors.length - 1);
}
