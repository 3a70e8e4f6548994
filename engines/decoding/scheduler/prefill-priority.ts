// Owns the choice to let running sequences sit out a step so that the batch fills first: beside a crowd of new prompts a
// few decodes cost a pass and bring little, and every prompt that waits for them starts later. Used by the scheduler
// only; it is told durations and never looks at a clock.
import type { StepTimeModel } from "./step-time-model.ts";

/** How long decodes may be held back, in steps of `max_step_ms`: a crowd as large as is served at once starts together. */
const longestHoldSteps = 32;

/** What would run in the next step. */
export interface Crowd {
  readonly decodes: number;
  readonly prompts: number;
  /** Tokens of all prompts that are still to be fed. */
  readonly promptTokens: number;
  /** How many of them have room beside the decodes. */
  readonly allowance: number;
}

export class PrefillPriority {
  readonly #cost: StepTimeModel;
  readonly #maxStepMs: number;
  #isHolding = false;
  #heldMs = 0;
  #limitMs = 0;

  constructor(cost: StepTimeModel, maxStepMs: number) {
    this.#cost = cost;
    this.#maxStepMs = maxStepMs;
  }

  /**
   * Whether the next step is for prompts alone. A hold begins when they do not fit beside the decodes, and lasts until
   * the last of them is in, those included that come meanwhile: whoever of a crowd is through first waits for the rest.
   * It is not begun, and ends, where that takes longer than a step for each prompt the hold began with, times their
   * share of all that ran then: many decodes do not stand still for a few prompts, nor any for a long one.
   */
  decide({ decodes, prompts, promptTokens, allowance }: Crowd): boolean {
    if (!this.#isHolding) {
      this.#heldMs = 0;
      this.#limitMs = (this.#maxStepMs * Math.min(prompts, longestHoldSteps) * prompts) / (prompts + decodes);
    }
    const isCrowded = prompts > 0 && (this.#isHolding || promptTokens > allowance);
    this.#isHolding = isCrowded && this.#heldMs + this.#cost.promptMs(promptTokens) <= this.#limitMs;
    return this.#isHolding;
  }

  /** Ends a hold: prompts and decodes go together. */
  release(): void {
    this.#isHolding = false;
  }

  /** Closes the step that took `stepMs` milliseconds. */
  endStep(stepMs: number): void {
    if (this.#isHolding) this.#heldMs += stepMs;
  }
}
