// Token ranges: how steps are divided by tokens instead of by rows of a matrix. Each thread computes the results of its range of tokens;
// then the threads exchange them.
import type { StepParts } from "../../pass/step-runner.ts";

const floatBytes = 4;

export interface TokenParts extends StepParts {
  /** Number of this thread. */
  readonly index: number;
  /** View of the thread's memory. */
  readonly floats: Float32Array;
}

/** Returns the half-open range [from, to) of the n tokens that a thread computes. */
export function tokenRange(thread: number, threads: number, n: number): { readonly from: number; readonly to: number } {
  return { from: Math.floor((n * thread) / threads), to: Math.floor((n * (thread + 1)) / threads) };
}

/** Exchanges the results of all threads (rows of `width` floats in their slabs), and writes all n rows to ThreadMemory.input. */
export function gatherTokens({ plan, kernels, at, allGather }: TokenParts, n: number): void {
  const { width } = plan.shape;
  const ranges = Array.from({ length: plan.threads }, (_, thread) => tokenRange(thread, plan.threads, n));
  const countOf = (thread: number) => {
    const { from = 0, to = 0 } = ranges[thread] ?? {};
    return to - from;
  };
  allGather.slabs((thread) => countOf(thread) * width * floatBytes);
  for (const [thread, { from }] of ranges.entries()) {
    const slab = at.slabs + thread * at.slabBytes;
    kernels.copyRows(slab, width, at.input + from * width * floatBytes, width, countOf(thread), width);
  }
}
