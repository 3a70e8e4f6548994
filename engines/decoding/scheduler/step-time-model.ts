// Step time model: estimates the duration of a step as the time of a pass over the weights, plus a cost per decode
// token, plus a cost per prompt token. All three are learnt from measured steps. The scheduler uses the estimates to
// limit the prompt tokens of a step, and speculation uses them to find the cost of drafts. Callers pass in durations;
// the model reads no clock.
import type { StepTarget } from "./limits.ts";

/**
 * Factor by which each new step reduces the weight of earlier steps. At 0.92, the least-squares fit covers some dozen
 * steps. In the scheduler benchmark (decode times of five engines), any factor from 0.9 to 0.98 yields as many tokens as
 * exact step times do.
 */
const memory = 0.92;
/**
 * Maximum ratio of a measured time to its estimate; longer times are capped, because disturbances only
 * lengthen steps. Chosen by hand.
 */
const believedFactor = 2;
/**
 * Weight of a new prompt measurement that is slower or faster than the estimate. A faster measurement has more weight,
 * so that slow first steps soon lose their effect.
 */
const slowerWeight = 0.2;
const fasterWeight = 0.5;
/**
 * Assumed cost of one more token, as a share of the mean step time per token. Used until steps of different sizes have
 * been measured. Chosen by hand.
 */
const assumedShare = 0.25;
/**
 * Regularisation of the least-squares fit: weight with which the slope is pulled towards the assumed cost of a token,
 * per measured step. It is added to the sum of squared deviations of the number of tokens, so its unit is tokens
 * squared.
 */
const assumptionWeight = 3e-3;
/** Factor by which each step reduces the recorded largest step size, so it halves in about 34 steps. Chosen by hand. */
const sizeMemory = 0.98;
/** Maximum time of a step that has only one sequence, in multiples of `maxStepMs`. Chosen by hand. */
const longestLoneSteps = 4;

export class StepTimeModel {
  readonly #target: StepTarget;
  readonly #maxDecodeTokens: number;
  /**
   * Decayed statistics of decode-only steps: total weight, mean tokens, mean milliseconds, sum of squared deviations,
   * and sum of products of deviations.
   */
  #weight = 0;
  #meanTokens = 0;
  #meanMs = 0;
  #squares = 0;
  #products = 0;
  #mostTokens = 0;
  #msPerPromptToken = 0;

  constructor(maxDecodeTokens: number, target: StepTarget) {
    this.#maxDecodeTokens = maxDecodeTokens;
    this.#target = target;
  }

  observe(decodeTokens: number, promptTokens: number, stepMs: number): void {
    if (promptTokens > 0) this.#observePrompt(promptTokens, stepMs - this.#besidesPromptMs(decodeTokens));
    else this.#observeDecodes(decodeTokens, stepMs);
  }

  /**
   * Estimated milliseconds of a step of `tokens` decode tokens, drafts included. 0 if `tokens` is 0 or
   * no step has been measured yet.
   */
  decodeMs(tokens: number): number {
    if (this.#weight === 0 || tokens === 0) return 0;
    const count = Math.min(tokens, this.#maxDecodeTokens);
    const line = this.#meanMs + this.#msPerToken * (count - this.#meanTokens);
    return Math.max(line, this.#meanMs * Math.min(count / this.#meanTokens, 1));
  }

  /** Largest number of decode tokens in recent steps. The estimated time of larger steps is uncertain. */
  get mostDecodeTokens(): number {
    return Math.round(this.#mostTokens);
  }

  /**
   * Returns the maximum number of prompt tokens in a step with `decodes` decodes, so that the step exceeds neither the
   * step target nor `mostMs`; null if no prompt has been measured yet.
   */
  promptAllowance(decodes: number, mostMs = Infinity): number | null {
    if (this.#msPerPromptToken === 0) return null;
    const stepMs = Math.max(this.#target.maxStepMs, this.decodeMs(decodes) * this.#target.decodeSlowdown);
    return this.#promptTokensIn(Math.min(stepMs, mostMs), decodes);
  }

  /**
   * Returns the maximum number of prompt tokens in a step of a sequence that has run without others for `aloneMs`. The
   * step may take half of `aloneMs`, at most `longestLoneSteps` times `maxStepMs`. The time is limited, because a new
   * request must wait for the end of the step.
   */
  loneAllowance(aloneMs: number): number {
    if (this.#msPerPromptToken === 0) return 0;
    return this.#promptTokensIn(Math.min(aloneMs / 2, this.#target.maxStepMs * longestLoneSteps), 0);
  }

  /** Estimated milliseconds of `tokens` prompt tokens; Infinity if no prompt has been measured yet. */
  promptMs(tokens: number): number {
    return this.#msPerPromptToken === 0 ? Infinity : tokens * this.#msPerPromptToken;
  }

  /** Number of prompt tokens that take as long as a pass over the weights; 0 if no prompt has been measured yet. */
  get passTokens(): number {
    return this.#msPerPromptToken === 0 ? 0 : this.#besidesPromptMs(0) / this.#msPerPromptToken;
  }

  #promptTokensIn(stepMs: number, decodes: number): number {
    return Math.max(Math.floor((stepMs - this.#besidesPromptMs(decodes)) / this.#msPerPromptToken), 0);
  }

  /**
   * Estimated time of a step without the cost of its prompt tokens. A step without decodes still makes one pass over
   * the weights, so it counts as one decode token.
   */
  #besidesPromptMs(decodes: number): number {
    return this.decodeMs(Math.max(decodes, 1));
  }

  /**
   * Slope of the fit: cost of one more decode token, in ms. Until steps of different sizes have been measured, it is
   * close to an assumed cost (the cost of a prompt token if that is known).
   */
  get #msPerToken(): number {
    const share = this.#meanMs / this.#meanTokens;
    const assumed = this.#msPerPromptToken === 0 ? share * assumedShare : Math.min(this.#msPerPromptToken, share);
    const weight = assumptionWeight * this.#weight;
    return Math.max((this.#products + weight * assumed) / (this.#squares + weight), 0);
  }

  #observePrompt(tokens: number, ms: number): void {
    if (ms <= 0) return;
    const old = this.#msPerPromptToken;
    const value = old === 0 ? ms / tokens : Math.min(ms / tokens, old * believedFactor);
    const weight = old === 0 ? 1 : value < old ? fasterWeight : slowerWeight;
    this.#msPerPromptToken = old + weight * (value - old);
  }

  #observeDecodes(tokens: number, stepMs: number): void {
    const believedMs = this.#weight === 0 ? stepMs : Math.min(stepMs, this.decodeMs(tokens) * believedFactor);
    const [ofTokens, ofMs] = [tokens - this.#meanTokens, believedMs - this.#meanMs];
    const before = this.#weight * memory;
    this.#weight = before + 1;
    this.#meanTokens += ofTokens / this.#weight;
    this.#meanMs += ofMs / this.#weight;
    this.#squares = this.#squares * memory + ofTokens * ofTokens * (before / this.#weight);
    this.#products = this.#products * memory + ofTokens * ofMs * (before / this.#weight);
    this.#mostTokens = Math.max(tokens, this.#mostTokens * sizeMemory);
  }
}
