// Owns the candidates of a request that returns only its likeliest ones: keeps what each has said until all have ended,
// then says it again in the order of their rank. It never decides when a candidate ends.
import type { ChoiceLogprob, FinishReason, GenerateEvent } from "../../engines/chat.ts";

/** What happens to one candidate. */
export type ChoiceEvent = Extract<GenerateEvent, { readonly choice: number }>;

class Candidate {
  text = "";
  readonly logprobs: ChoiceLogprob[] = [];
  hasLogprobs = false;
  refusal: string | null = null;
  reason: FinishReason = "stop";

  keep(event: ChoiceEvent): void {
    if (event.type === "text") {
      this.text += event.text;
      if (!event.logprobs) return;
      this.hasLogprobs = true;
      for (const logprob of event.logprobs) this.logprobs.push(logprob);
    } else if (event.type === "refusal") this.refusal = event.reason;
    else this.reason = event.reason;
  }

  eventsAs(choice: number): GenerateEvent[] {
    const text = { type: "text", choice, text: this.text } as const;
    return [
      this.hasLogprobs ? { ...text, logprobs: this.logprobs } : text,
      ...(this.refusal === null ? [] : [{ type: "refusal", choice, reason: this.refusal } as const]),
      { type: "finish", choice, reason: this.reason },
    ];
  }
}

export class BestOf {
  readonly #candidates: readonly Candidate[];

  constructor(candidateCount: number) {
    this.#candidates = Array.from({ length: candidateCount }, () => new Candidate());
  }

  keep(event: ChoiceEvent): void {
    this.#candidates[event.choice]?.keep(event);
  }

  /** The events of the likeliest `count`, numbered by rank. A refused one comes after all that are not. */
  likeliest(count: number, meanLogprobs: readonly number[]): GenerateEvent[] {
    const ranked = this.#candidates.map((candidate, i) => ({ candidate, mean: meanLogprobs[i] as number }));
    ranked.sort((a, b) => {
      const aRefused = a.candidate.refusal !== null;
      if (aRefused !== (b.candidate.refusal !== null)) return aRefused ? 1 : -1;
      // No difference: both may be minus infinity.
      return a.mean === b.mean ? 0 : a.mean > b.mean ? -1 : 1;
    });
    return ranked.slice(0, count).flatMap(({ candidate }, choice) => candidate.eventsAs(choice));
  }
}
