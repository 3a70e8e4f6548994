// Prefill budget: decides how many prompt tokens the next step takes, when prompts go before decodes, and when a step
// contains only prompts. Callers pass in durations; the budget reads no clock.
import type { AdapterRotation } from "./adapter-rotation.ts";
import type { StepLimits } from "./limits.ts";
import type { Sequence } from "./sequence.ts";
import type { StepTimeModel } from "./step-time-model.ts";

/**
 * If a step has only one prompt, the prompt may exceed its allowance by up to this factor, if the step then
 * completes the prompt. Chosen by hand.
 */
const loneRestFactor = 2;
/**
 * Maximum time for which decodes are held back, as a multiple of `maxStepMs`. Waiting prompts get up to one `maxStepMs`
 * each, so up to 32 prompts that arrive together also start to decode together. Chosen by hand.
 */
const longestHoldSteps = 32;

export class PrefillBudget<S extends Sequence> {
  /**
   * Unit of the length of prompt chunks, in tokens: a chunk ends at a multiple of this number from position 0, or at the
   * end of the prompt. These positions do not depend on the load.
   */
  readonly grain: number;
  readonly #cost: StepTimeModel;
  readonly #limits: StepLimits;
  readonly #rotation: AdapterRotation | null;
  /** Chunk length, in tokens, above which prefill does not get faster. */
  readonly #bestChunk: number;
  /** Number and total time in ms of the steps in which a prompt waited, since a prompt was last fed. */
  #decodeOnlySteps = 0;
  #decodeOnlyMs = 0;
  /** The runnable sequence if there is exactly one, and the time in ms for which no other sequence was runnable. */
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

  /** Records which sequences can run in the next step. */
  begin(decodes: readonly S[], prompts: readonly S[]): void {
    const lone = decodes.length + prompts.length > 1 ? null : (decodes[0] ?? prompts[0] ?? null);
    if (lone !== this.#lone) this.#aloneMs = 0;
    this.#lone = lone;
  }

  /** Ends a step. `promptWaits`: a prompt could have run but was not fed. */
  endStep(stepMs: number, promptWaits: boolean): void {
    if (this.#isHolding) this.#heldMs += stepMs;
    this.#aloneMs = this.#lone === null ? 0 : this.#aloneMs + stepMs;
    this.#decodeOnlySteps = promptWaits ? this.#decodeOnlySteps + 1 : 0;
    this.#decodeOnlyMs = promptWaits ? this.#decodeOnlyMs + stepMs : 0;
  }

  /**
   * Whether prompts are due: in a step in which prompts are due, they go before decodes and get at least `grain`
   * tokens (the unit of chunk lengths). True in the first step of an adapter's quantum, because its prompts have
   * waited for other adapters. Also true after `maxDecodeStepsBeforePrefill` decode steps, and after decodes have run
   * for half the time of `grain` prompt tokens. So decodes increase the prefill time of a long prompt by a factor of
   * about two at most.
   */
  get isDue(): boolean {
    if (this.#rotation?.isSwitch) return true;
    if (this.#decodeOnlySteps >= this.#limits.maxDecodeStepsBeforePrefill) return true;
    return this.#decodeOnlySteps > 0 && this.#decodeOnlyMs >= this.#cost.promptMs(this.grain) / 2;
  }

  /**
   * Returns the maximum number of prompt tokens in a step with `decodes` decodes. It is at least `grain` (the unit of
   * chunk lengths) if prompts are due or if there are no decodes.
   */
  allowance(decodes: number, prompts: readonly S[], isDue: boolean): number {
    const allowance = this.#cost.promptAllowance(decodes, this.#rotation?.longestStepMs ?? Infinity) ?? 0;
    if (decodes > 0) return isDue ? Math.max(allowance, this.grain) : allowance;
    return Math.max(allowance, this.grain, this.#loneAllowance(prompts, allowance));
  }

  /**
   * Returns whether the next step contains only prompts although some sequences could decode. If many prompts arrive
   * together, a step with few decodes costs a pass over the weights but yields few tokens. So decodes are held back
   * if the prompts do not fit into the same step. They are held back until all prompts have been fed, including
   * prompts that arrive later, so sequences that finish their prefill early wait for the other sequences.
   *
   * Decodes are held back for at most `maxStepMs` per prompt (counted at the beginning), times the fraction of
   * prompts among the runnable sequences. This limit prevents many decodes from waiting for a few prompts, and any
   * decode from waiting for a single long prompt. While adapters take turns, decodes are never held back, because
   * they have just waited for the other adapters.
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
   * Returns the maximum chunk length if a step has only one prompt; 0 if it has several. If the rest of the prompt is at
   * most twice the allowance, returns the length of the whole rest: a second pass would delay the prompt more than the
   * longer step delays a new request. A sequence that has long been the only runnable one gets longer chunks.
   */
  #loneAllowance([only, other]: readonly S[], allowance: number): number {
    if (only === undefined || other !== undefined || this.#rotation?.isShared) return 0;
    if (only.pending <= allowance * loneRestFactor) return only.pending;
    return this.#lone === null ? 0 : Math.min(this.#cost.loneAllowance(this.#aloneMs), this.#bestChunk);
  }
}
