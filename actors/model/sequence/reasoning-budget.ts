// Reasoning budget: follows the output of one sequence and decides when the end of its reasoning must be forced.
import type { ReasoningLimit } from "../../messages.ts";

export class ReasoningBudget {
  readonly #budget: ReasoningLimit;
  #state: "beginning" | "thinking" | "over" = "beginning";
  /** Number of tokens of the begin tag so far, and number of tokens after it. */
  #begun = 0;
  #spent = 0;
  /** Number of latest output tokens that match the beginning of the end tag. */
  #matched = 0;

  constructor(budget: ReasoningLimit) {
    this.#budget = budget;
    if (budget.begin.length === 0) this.#state = "thinking";
  }

  /** Returns the tokens with which the output must begin: the end tag, if the prompt has begun the reasoning and none is allowed. */
  start(): Int32Array | null {
    return this.#state === "thinking" && this.#budget.tokens === 0 ? this.#close() : null;
  }

  /** Processes the next output token. Returns the tokens that must follow (the missing part of the end tag); null = nothing is forced. */
  take(token: number): Int32Array | null {
    const { tokens, blanks, begin, end } = this.#budget;
    if (this.#state === "over") return null;
    if (this.#state === "beginning") {
      if (this.#begun === 0 && blanks.includes(token)) return null;
      if (token !== begin[this.#begun++]) this.#state = "over";
      else if (this.#begun === begin.length) this.#state = "thinking";
      return this.start();
    }
    this.#spent++;
    this.#matched = token === end[this.#matched] ? this.#matched + 1 : token === end[0] ? 1 : 0;
    if (this.#matched === end.length) this.#state = "over";
    else if (this.#spent >= tokens) return this.#close();
    return null;
  }

  #close(): Int32Array {
    this.#state = "over";
    return this.#budget.end.subarray(this.#matched);
  }
}
