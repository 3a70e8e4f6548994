// Prefill budget: how many prompt tokens the next step takes, when prompts go before decodes, and when they have the step
// to themselves. It is told durations and reads no clock.
import type { AdapterRotation } from "./adapter-rotation.ts";
import type { StepLimits } from "./limits.ts";
import type { Sequence } from "./sequence.ts";
import type { StepTimeModel } from "./step-time-model.ts";

/** The only prompt may take this many times its allowance if that completes it. Chosen by hand. */
const loneRestFactor = 2;
/** Longest hold of decodes, in steps of `maxStepMs`: 32 prompts that come at once start together. Chosen by hand. */
const longestHoldSteps = 32;

export class PrefillBudget<S extends Sequence> {
  /** Chunks of a prompt end on multiples of this from position 0, whatever the load, or at the prompt's end. */
  readonly grain: number;
  readonly #cost: StepTimeModel;
  readonly #limits: StepLimits;
  readonly #rotation: AdapterRotation | null;
  /** Longest chunk that makes prefill faster. */
  readonly #bestChunk: number;
  /** Steps, and their time, since a waiting prompt was last fed. */
  #decodeOnlySteps = 0;
  #decodeOnlyMs = 0;
  /** The only runnable sequence, if there is one, and for how long it has been the only one. */
  #lone: S | null = null;
  #aloneMs = 0;
  #isHolding = false;
  #heldMs = 0;
  #holdLimitMs = 0;

  constructor(
    cost: StepTimeModel,
    limits: StepLimits,
    chunkTokens: { readonly least: number; readonly best: number },
    rotation: AdapterRotation | null,
  ) {
    this.#cost = cost;
    this.#limits = limits;
    this.#rotation = rotation;
    this.#bestChunk = chunkTokens.best;
    this.grain = Math.min(chunkTokens.least, limits.maxPrefillChunkTokens, limits.maxBatchTokens);
  }

  /** Takes note of what can run in the next step. */
  begin(decodes: readonly S[], prompts: readonly S[]): void {
    const lone = decodes.length + prompts.length > 1 ? null : (decodes[0] ?? prompts[0] ?? null);
    if (lone !== this.#lone) this.#aloneMs = 0;
    this.#lone = lone;
  }

  /** Closes a step. `promptWaits`: a prompt could have run and was not fed. */
  endStep(stepMs: number, promptWaits: boolean): void {
    if (this.#isHolding) this.#heldMs += stepMs;
    this.#aloneMs = this.#lone === null ? 0 : this.#aloneMs + stepMs;
    this.#decodeOnlySteps = promptWaits ? this.#decodeOnlySteps + 1 : 0;
    this.#decodeOnlyMs = promptWaits ? this.#decodeOnlyMs + stepMs : 0;
  }

  /**
   * Whether prompts go first and get at least one grain: on an adapter's first step, because they have waited for the
   * other adapters; after `maxDecodeStepsBeforePrefill` steps; and once decodes have had half the time that a grain takes.
   * So a long prompt takes at most about twice as long as alone.
   */
  get isDue(): boolean {
    if (this.#rotation?.isSwitch) return true;
    if (this.#decodeOnlySteps >= this.#limits.maxDecodeStepsBeforePrefill) return true;
    return this.#decodeOnlySteps > 0 && this.#decodeOnlyMs >= this.#cost.promptMs(this.grain) / 2;
  }

  /** Prompt tokens for a step beside `decodes` decodes; at least one grain if prompts are due or have the step alone. */
  allowance(decodes: number, prompts: readonly S[], isDue: boolean): number {
    const allowance = this.#cost.promptAllowance(decodes, this.#rotation?.longestStepMs ?? Infinity) ?? 0;
    if (decodes > 0) return isDue ? Math.max(allowance, this.grain) : allowance;
    return Math.max(allowance, this.grain, this.#loneAllowance(prompts, allowance));
  }

  /**
   * Whether decodes sit out the next step, so that the batch fills first: beside a crowd of new prompts a few decodes cost
   * a pass over the weights and yield little. A hold begins when the prompts do not fit beside the decodes and lasts until
   * all of them are fed, later ones included; sequences that finish prefill first wait for the others. It takes at most a
   * step of `maxStepMs` for each prompt it began with, times the prompts' share of all that could run then: many decodes do
   * not wait for a few prompts, and none for a long one. No hold while adapters take turns: those decodes have just waited.
   */
  holdsDecodes(decodes: number, prompts: readonly S[]): boolean {
    const count = this.#rotation?.isShared ? 0 : prompts.length;
    if (!this.#isHolding) {
      this.#heldMs = 0;
      this.#holdLimitMs = (this.#limits.maxStepMs * Math.min(count, longestHoldSteps) * count) / (count + decodes);
    }
    let tokens = 0;
    for (const { pending } of prompts) tokens += pending;
    const isCrowded = count > 0 && (this.#isHolding || tokens > this.allowance(decodes, prompts, false));
    this.#isHolding = isCrowded && this.#heldMs + this.#cost.promptMs(tokens) <= this.#holdLimitMs;
    return this.#isHolding;
  }

  /**
   * Tokens for the only prompt: all that is left if that is at most twice the allowance, because another pass for the rest
   * would delay it by more than it delays a new request; longer chunks if it has run alone for long.
   */
  #loneAllowance([only, other]: readonly S[], allowance: number): number {
    if (only === undefined || other !== undefined || this.#rotation?.isShared) return 0;
    if (only.pending <= allowance * loneRestFactor) return only.pending;
    return this.#lone === null ? 0 : Math.min(this.#cost.loneAllowance(this.#aloneMs), this.#bestChunk);
  }
}
