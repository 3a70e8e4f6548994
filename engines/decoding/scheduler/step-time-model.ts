// Owns the estimate of what a step takes, learnt from the steps that were run, and from it how many prompt tokens may
// join the decodes of the next one; speculation asks it what drafts cost. It is told durations; it never looks at a clock.

import type { StepTarget } from "./limits.ts";

/** Least weight of the newest observation. */
const smoothing = 0.2;
/** Steps are disturbed one way only, so one that takes far longer than expected is believed up to here. */
const believedFactor = 2;
/** Weight of prompt tokens that take less than expected: a model's first steps, which are slow, are soon forgotten. */
const quickSmoothing = 0.5;
/** What was seen once is forgotten after so many steps; each time it is confirmed it is kept twice as long, up to the most. */
const shortestMemory = 32;
const longestMemory = 512;
/** Longest step of a sequence that runs alone, in multiples of `maxStepMs`. */
const longestLoneSteps = 4;
/** Of a step of one size alone: the share of a token's part in it that one more token is taken to cost. */
const assumedShare = 0.25;
/** As many tokens of span weigh as much as the assumption. */
const assumptionWeight = 2;

export class StepTimeModel {
  readonly #target: StepTarget;
  /** Milliseconds of a step of n decode tokens and nothing else, by n: decodes with their drafts. */
  readonly #seenMs: Float64Array;
  readonly #timesSeen: Float64Array;
  /** Number of the step that last had n decode tokens and nothing else. */
  readonly #lastSeen: Float64Array;
  /** The estimate for each n, from what is remembered. */
  readonly #curve: Float64Array;
  #isCurveCurrent = true;
  #steps = 0;
  #mostRemembered = 0;
  #msPerPromptToken = 0;

  constructor(maxDecodeTokens: number, target: StepTarget) {
    this.#seenMs = new Float64Array(maxDecodeTokens + 1);
    this.#timesSeen = new Float64Array(maxDecodeTokens + 1);
    this.#lastSeen = new Float64Array(maxDecodeTokens + 1);
    this.#curve = new Float64Array(maxDecodeTokens + 1);
    this.#target = target;
  }

  observe(decodeTokens: number, promptTokens: number, stepMs: number): void {
    if (promptTokens > 0) {
      this.#observePrompt(promptTokens, stepMs - this.#besidesPromptMs(decodeTokens));
    } else {
      this.#observeDecodes(decodeTokens, stepMs);
    }
    this.#isCurveCurrent = false;
  }

  /** What a step of so many decode tokens takes, drafts included; 0 while none has been seen. */
  decodeMs(tokens: number): number {
    this.#update();
    return this.#curve[Math.min(tokens, this.#curve.length - 1)] as number;
  }

  /** The most decode tokens of a step that is remembered: what more would take is a guess. */
  get mostDecodeTokens(): number {
    this.#update();
    return this.#mostRemembered;
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

  /** What so many prompt tokens take; Infinity while no prompt has been seen. */
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

  /** What a step with prompt tokens takes whatever their number: a pass over the weights, as one decode token has it alone. */
  #besidesPromptMs(decodes: number): number {
    return this.decodeMs(Math.max(decodes, 1));
  }

  #observePrompt(tokens: number, ms: number): void {
    if (ms <= 0) return;
    const old = this.#msPerPromptToken;
    const value = old === 0 ? ms / tokens : Math.min(ms / tokens, old * believedFactor);
    const weight = old === 0 ? 1 : value < old ? quickSmoothing : smoothing;
    this.#msPerPromptToken = old + weight * (value - old);
  }

  #observeDecodes(tokens: number, stepMs: number): void {
    const old = this.#seenMs[tokens] as number;
    const times = this.#timesSeen[tokens] as number;
    const isNews = !this.#isRemembered(tokens);
    const believed = isNews ? stepMs : Math.min(stepMs, old * believedFactor);
    this.#seenMs[tokens] = isNews ? believed : old + Math.max(smoothing, 1 / (times + 1)) * (believed - old);
    // News that is unlike what was forgotten confirms nothing.
    const isConfirmed = !isNews || (stepMs <= old * believedFactor && old <= stepMs * believedFactor);
    this.#timesSeen[tokens] = isConfirmed ? times + 1 : 1;
    this.#lastSeen[tokens] = ++this.#steps;
  }

  /** A size that once was slow and is therefore avoided would never be seen again: so it is forgotten. */
  #isRemembered(tokens: number): boolean {
    const times = this.#timesSeen[tokens] as number;
    if (times === 0) return false;
    const memory = Math.min(shortestMemory * 2 ** (times - 1), longestMemory);
    return this.#steps - (this.#lastSeen[tokens] as number) < memory;
  }

  /** Straight lines between the sizes that are remembered; below and above them what a token more or less should cost. */
  #update(): void {
    if (this.#isCurveCurrent) return;
    this.#isCurveCurrent = true;
    const curve = this.#curve;
    let first = 0;
    let last = 0;
    for (let n = 1; n < curve.length; n++) {
      if (!this.#isRemembered(n)) continue;
      curve[n] = this.#seenMs[n] as number;
      if (first === 0) first = n;
      else for (let m = last + 1; m < n; m++) curve[m] = between(curve, last, n, m);
      last = n;
    }
    this.#mostRemembered = last;
    if (last === 0) return;
    const slope = this.#slope(first, last);
    const lowest = curve[first] as number;
    for (let n = 1; n < first; n++) curve[n] = Math.max(lowest - slope * (first - n), (lowest * n) / first);
    for (let n = last + 1; n < curve.length; n++) curve[n] = (curve[last] as number) + slope * (n - last);
  }

  /** What one token more costs. A prompt's tokens say it best until steps of different sizes have been seen. */
  #slope(first: number, last: number): number {
    const ofLast = this.#seenMs[last] as number;
    const share = ofLast / last;
    const assumed = this.#msPerPromptToken === 0 ? share * assumedShare : Math.min(this.#msPerPromptToken, share);
    const rise = ofLast - (this.#seenMs[first] as number);
    return Math.max((assumed * assumptionWeight + rise) / (assumptionWeight + last - first), 0);
  }
}

function between(curve: Float64Array, from: number, to: number, at: number): number {
  const start = curve[from] as number;
  return start + (((curve[to] as number) - start) * (at - from)) / (to - from);
}
