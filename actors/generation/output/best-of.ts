// Best-of: holds the events of all candidates of a request until all candidates have ended. Then returns the events of the most
// likely candidates, best first. choice.ts decides when a candidate ends.
import { type ChoiceEvent, EventBuffer } from "./event-buffer.ts";

class Candidate {
  readonly events = new EventBuffer<ChoiceEvent>();
  isRefused = false;
}

export class BestOf {
  readonly #candidates: readonly Candidate[];

  constructor(candidateCount: number) {
    this.#candidates = Array.from({ length: candidateCount }, () => new Candidate());
  }

  keep(event: ChoiceEvent): void {
    const candidate = this.#candidates[event.choice];
    if (candidate === undefined) return;
    candidate.events.add(event);
    if (event.type === "refusal") candidate.isRefused = true;
  }

  /**
   * Returns the events of the `count` most likely candidates; the field `choice` of an event is the candidate's rank. Candidates
   * that ended with a refusal rank last.
   */
  likeliest(count: number, meanLogprobs: readonly number[]): ChoiceEvent[] {
    const ranked = this.#candidates.map((candidate, i) => ({ candidate, mean: meanLogprobs[i] as number }));
    ranked.sort((a, b) => {
      if (a.candidate.isRefused !== b.candidate.isRefused) return a.candidate.isRefused ? 1 : -1;
      // The means are compared, not subtracted, because both may be minus infinity.
      return a.mean === b.mean ? 0 : a.mean > b.mean ? -1 : 1;
    });
    return ranked
      .slice(0, count)
      .flatMap(({ candidate }, choice) => candidate.events.take().map((event) => ({ ...event, choice })));
  }
}
