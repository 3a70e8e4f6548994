// Step time model: estimates how long a step takes, as a pass over the weights plus a cost per decode token plus a cost per
// prompt token, learnt from the steps that ran. The scheduler asks how many prompt tokens may join the decodes of a step,
// speculation what drafts cost. It is told durations and reads no clock.
import type { StepTarget } from "./limits.ts";

/**
 * Factor on the weight of all earlier steps: a least-squares fit over some dozen steps. With 0.9 to 0.98, drafts over the
 * measured decode times of five engines yield as many tokens as with a table of times by size (bench scheduler).
 */
const memory = 0.92;
/** Disturbances only lengthen steps, so a step is believed up to this many times its estimate. Chosen by hand. */
const believedFactor = 2;
/** Weight of the newest prompt, by whether it took longer or less than estimated: slow first steps are soon forgotten. */
const slowerWeight = 0.2;
const fasterWeight = 0.5;
/** Part of a token's share of a step that one more token is assumed to cost, until step sizes differ. Chosen by hand. */
const assumedShare = 0.25;
/** Weight of that assumption, in squared tokens of deviation per step. */
const assumptionWeight = 3e-3;
/** Factor on the largest seen step with each later one: it halves in some 34 steps. Chosen by hand. */
const sizeMemory = 0.98;
/** Longest step of a sequence that runs alone, in multiples of `maxStepMs`. Chosen by hand. */
const longestLoneSteps = 4;

export class StepTimeModel {
  readonly #target: StepTarget;
  readonly #maxDecodeTokens: number;
  /** Of decode-only steps, decayed: weight; means of tokens and milliseconds; sums of squared deviations and products. */
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

  /** Milliseconds of a step of `tokens` decode tokens, drafts included; 0 for no tokens, and while no step has been seen. */
  decodeMs(tokens: number): number {
    if (this.#weight === 0 || tokens === 0) return 0;
    const count = Math.min(tokens, this.#maxDecodeTokens);
    const line = this.#meanMs + this.#msPerToken * (count - this.#meanTokens);
    return Math.max(line, this.#meanMs * Math.min(count / this.#meanTokens, 1));
  }

  /** Most decode tokens of a recent step: the time of larger steps is a guess. */
  get mostDecodeTokens(): number {
    return Math.round(this.#mostTokens);
  }

  /**
   * Prompt tokens that keep a step beside `decodes` decodes within its target, and within `mostMs`; null while no prompt
   * has been seen.
   */
  promptAllowance(decodes: number, mostMs = Infinity): number | null {
    if (this.#msPerPromptToken === 0) return null;
    const stepMs = Math.max(this.#target.maxStepMs, this.decodeMs(decodes) * this.#target.decodeSlowdown);
    return this.#promptTokensIn(Math.min(stepMs, mostMs), decodes);
  }

  /**
   * Prompt tokens for a step of a sequence that has run alone for `aloneMs`. The step may take half of that time, at most
   * `longestLoneSteps` times `maxStepMs`: a new request waits for it.
   */
  loneAllowance(aloneMs: number): number {
    if (this.#msPerPromptToken === 0) return 0;
    return this.#promptTokensIn(Math.min(aloneMs / 2, this.#target.maxStepMs * longestLoneSteps), 0);
  }

  /** Milliseconds of `tokens` prompt tokens; Infinity while no prompt has been seen. */
  promptMs(tokens: number): number {
    return this.#msPerPromptToken === 0 ? Infinity : tokens * this.#msPerPromptToken;
  }

  /** Prompt tokens that take as long as a pass over the weights; 0 while no prompt has been seen. */
  get passTokens(): number {
    return this.#msPerPromptToken === 0 ? 0 : this.#besidesPromptMs(0) / this.#msPerPromptToken;
  }

  #promptTokensIn(stepMs: number, decodes: number): number {
    return Math.max(Math.floor((stepMs - this.#besidesPromptMs(decodes)) / this.#msPerPromptToken), 0);
  }

  /** Time of a step with prompt tokens apart from those: a pass over the weights, as for one decode token. */
  #besidesPromptMs(decodes: number): number {
    return this.decodeMs(Math.max(decodes, 1));
  }

  /** Slope of the fit. A prompt's tokens are the best guess until step sizes differ. */
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
