// Token shares: steps that are divided by tokens instead of by rows of a matrix. Each thread computes the results of its tokens, then all
// threads exchange them.
import type { StepParts } from "../../pass/step-runner.ts";

const floatBytes = 4;

export interface TokenParts extends StepParts {
  readonly index: number;
  /** View of the thread's memory. */
  readonly floats: Float32Array;
}

/** Returns the tokens that a thread computes, of n tokens: from `from` to before `to`. */
export function tokensOf(thread: number, threads: number, n: number): { readonly from: number; readonly to: number } {
  return { from: Math.floor((n * thread) / threads), to: Math.floor((n * (thread + 1)) / threads) };
}

/** Exchanges the results of all threads, which are rows of the hidden state's width in their slabs, and writes them to ThreadMemory.input. */
export function gatherTokens({ plan, kernels, at, allGather }: TokenParts, n: number): void {
  const { width } = plan.shape;
  const countOf = (thread: number) => {
    const { from, to } = tokensOf(thread, plan.threads, n);
    return to - from;
  };
  allGather.slabs((thread) => countOf(thread) * width * floatBytes);
  for (let thread = 0; thread < plan.threads; thread++) {
    const { from } = tokensOf(thread, plan.threads, n);
    const slab = at.slabs + thread * at.slabBytes;
    kernels.copyRows(slab, width, at.input + from * width * floatBytes, width, countOf(thread), width);
  }
}
