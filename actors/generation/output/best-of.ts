// Owns the candidates of a request that returns only its likeliest ones: keeps what each has said until all have ended,
// then says it again in the order of their rank. It never decides when a candidate ends.
import type { GenerateEvent } from "../../../engines/generation.ts";
import { type ChoiceEvent, EventBuffer } from "./event-buffer.ts";

class Candidate {
  readonly said = new EventBuffer();
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
    candidate.said.add(event);
    if (event.type === "refusal") candidate.isRefused = true;
  }

  /** The events of the likeliest `count`, numbered by rank. A refused one comes after all that are not. */
  likeliest(count: number, meanLogprobs: readonly number[]): GenerateEvent[] {
    const ranked = this.#candidates.map((candidate, i) => ({ candidate, mean: meanLogprobs[i] as number }));
    ranked.sort((a, b) => {
      if (a.candidate.isRefused !== b.candidate.isRefused) return a.candidate.isRefused ? 1 : -1;
      // No difference: both may be minus infinity.
      return a.mean === b.mean ? 0 : a.mean > b.mean ? -1 : 1;
    });
    return ranked
      .slice(0, count)
      .flatMap(({ candidate }, choice) => candidate.said.take().map((event) => ({ ...event, choice })));
  }
}
