// Owns the estimate of what a step takes, learnt from the steps that were run, and from it how many prompt tokens may
// join the decodes of the next one. It is told durations; it never looks at a clock.

export interface StepTarget {
  /** A step with decodes may take this many times what they take alone. */
  readonly decodeSlowdown: number;
  /** A step without decodes may take this long: cancels and new requests wait for it. */
  readonly maxStepMs: number;
}

// Weight of the newest observation.
const smoothing = 0.2;

export class StepCost {
  readonly #target: StepTarget;
  /** Milliseconds of a step of n decodes and nothing else, by n; 0 = not seen yet. */
  readonly #decodeMs: Float64Array;
  #msPerPromptToken = 0;

  constructor(maxSequences: number, target: StepTarget) {
    this.#decodeMs = new Float64Array(maxSequences + 1);
    this.#target = target;
  }

  observe(decodes: number, promptTokens: number, stepMs: number): void {
    if (promptTokens === 0) {
      this.#decodeMs[decodes] = blend(this.#decodeMs[decodes] ?? 0, stepMs);
      return;
    }
    const forPrompt = stepMs - this.#decodeEstimate(decodes);
    if (forPrompt > 0) this.#msPerPromptToken = blend(this.#msPerPromptToken, forPrompt / promptTokens);
  }

  /** Prompt tokens that keep a step beside `decodes` decodes within its target; null while no prompt has been seen. */
  promptAllowance(decodes: number): number | null {
    if (this.#msPerPromptToken === 0) return null;
    const decodeMs = this.#decodeEstimate(decodes);
    const stepMs = Math.max(this.#target.maxStepMs, decodeMs * this.#target.decodeSlowdown);
    return Math.floor((stepMs - decodeMs) / this.#msPerPromptToken);
  }

  /** What so many prompt tokens take; Infinity while no prompt has been seen. */
  promptMs(tokens: number): number {
    return this.#msPerPromptToken === 0 ? Infinity : tokens * this.#msPerPromptToken;
  }

  /** Of the nearest number of decodes that was seen: the next lower one, else the next higher. */
  #decodeEstimate(decodes: number): number {
    for (let n = decodes; n > 0; n--) if (this.#decodeMs[n]) return this.#decodeMs[n] as number;
    for (let n = decodes + 1; decodes > 0 && n < this.#decodeMs.length; n++) {
      if (this.#decodeMs[n]) return this.#decodeMs[n] as number;
    }
    return 0;
  }
}

function blend(old: number, value: number): number {
  return old === 0 ? value : old + smoothing * (value - old);
}
