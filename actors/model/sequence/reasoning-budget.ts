// Reasoning budget: follows the output of one sequence and decides when the end of its reasoning must be forced.
import type { ReasoningLimit } from "../../messages.ts";

export class ReasoningBudget {
  readonly #budget: ReasoningLimit;
  #state: "beginning" | "thinking" | "over" = "beginning";
  /** Number of output tokens so far, and number of latest output tokens that match the beginning of the end tag. */
  #seen = 0;
  #matched = 0;

  constructor(budget: ReasoningLimit) {
    this.#budget = budget;
    if (budget.begin.length === 0) this.#state = "thinking";
  }

  /** Processes the next output token. Returns the tokens that must follow (the missing part of the end tag); null = nothing is forced. */
  take(token: number): Int32Array | null {
    const { tokens, begin, end } = this.#budget;
    const at = this.#seen++;
    if (this.#state === "over") return null;
    if (this.#state === "beginning") {
      if (token !== begin[at]) this.#state = "over";
      else if (at + 1 === begin.length) this.#state = "thinking";
      return this.#state === "thinking" && tokens === 0 ? this.#close() : null;
    }
    this.#matched = token === end[this.#matched] ? this.#matched + 1 : token === end[0] ? 1 : 0;
    if (this.#matched === end.length) this.#state = "over";
    else if (this.#seen - begin.length >= tokens) return this.#close();
    return null;
  }

  #close(): Int32Array {
    this.#state = "over";
    return this.#budget.end.subarray(this.#matched);
  }
}
