// Owns the choice to let running sequences sit out a step so that the batch fills first: beside a crowd of new prompts a
// few decodes cost a pass and bring little, and every prompt that waits for them starts later. Used by the scheduler
// only; it is told durations and never looks at a clock.
import type { StepCost } from "./step-cost.ts";

/** How long a single decode may be held back by a great crowd, in steps of prompts of full length. */
const longestHoldSteps = 8;

/** What would run in the next step. */
export interface Crowd {
  readonly decodes: number;
  readonly prompts: number;
  /** Tokens of all prompts that are still to be fed. */
  readonly promptTokens: number;
  /** How many of them have room beside the decodes. */
  readonly allowance: number;
}

export class DecodeHold {
  readonly #cost: StepCost;
  readonly #limitMs: number;
  #heldMs = 0;
  #isHolding = false;

  constructor(cost: StepCost, maxStepMs: number) {
    this.#cost = cost;
    this.#limitMs = longestHoldSteps * maxStepMs;
  }

  /**
   * Whether the next step is for prompts alone: they do not fit beside the decodes, and all of them are done before the
   * decodes have waited too long, which is the shorter the more of them there are. Long prompts go beside decodes.
   */
  decide({ decodes, prompts, promptTokens, allowance }: Crowd): boolean {
    const limitMs = (this.#limitMs * prompts) / (prompts + decodes);
    const isCrowded = decodes > 0 && promptTokens > allowance;
    this.#isHolding = isCrowded && this.#heldMs + this.#cost.promptMs(promptTokens) <= limitMs;
    return this.#isHolding;
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    this.#heldMs = this.#isHolding ? this.#heldMs + stepMs : 0;
  }
}
