// Best of: the candidates of a request that returns only the likeliest. Keeps the events of each until all have ended, then
// gives those of the likeliest in the order of their rank. Does not decide when a candidate ends.
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

  /** The events of the `count` likeliest candidates; `choice` is the rank. Refused candidates rank last. */
  likeliest(count: number, meanLogprobs: readonly number[]): ChoiceEvent[] {
    const ranked = this.#candidates.map((candidate, i) => ({ candidate, mean: meanLogprobs[i] as number }));
    ranked.sort((a, b) => {
      if (a.candidate.isRefused !== b.candidate.isRefused) return a.candidate.isRefused ? 1 : -1;
      // Not subtracted: both may be minus infinity.
      return a.mean === b.mean ? 0 : a.mean > b.mean ? -1 : 1;
    });
    return ranked
      .slice(0, count)
      .flatMap(({ candidate }, choice) => candidate.events.take().map((event) => ({ ...event, choice })));
  }
}
