// Owns the choice to let running sequences sit out a step so that the batch fills first: beside a crowd of new prompts a
// few decodes cost a pass and bring little, and every prompt that waits for them starts later. Used by the scheduler
// only; it is told durations and never looks at a clock.
import type { StepCost } from "./step-cost.ts";

/** How long decodes may be held back, in steps of prompts of full length. */
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
   * Whether the next step is for prompts alone: there are more of them than decodes, they do not fit beside these, and all
   * of them are done before the decodes have waited too long. Long prompts are therefore fed beside the decodes.
   */
  decide({ decodes, prompts, promptTokens, allowance }: Crowd): boolean {
    const isCrowded = decodes > 0 && prompts > decodes && promptTokens > allowance;
    this.#isHolding = isCrowded && this.#heldMs + this.#cost.promptMs(promptTokens) <= this.#limitMs;
    return this.#isHolding;
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    this.#heldMs = this.#isHolding ? this.#heldMs + stepMs : 0;
  }
}
