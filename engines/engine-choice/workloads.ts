// Workloads of a trial: the kinds of work for which both engines are timed, and the speeds computed from the times.
import type { TrialReport } from "../../runtime/host/system.ts";

/** Speeds in tokens/s. */
export type Speeds = Omit<TrialReport, "weightBytes">;

/** One kind of work to be timed. */
export interface Workload {
  readonly rows: number;
  readonly tokensPerRow: number;
  /** Number of steps in a run. The time of the shortest step is the result of the run. */
  readonly steps: number;
}

export interface Workloads {
  /** Prefill workloads; all have the same weight in the result. */
  readonly prompts: readonly Workload[];
  /** Decode workloads; null for an encoder. */
  readonly oneRow: Workload | null;
  readonly sixteenRows: Workload | null;
}

/** Number of sequences in the largest decode batch measured. */
export const trialSequences = 16;
/** Maximum length of a sequence in tokens: the smallest context that llama.cpp allocates. */
export const trialContext = 256;
const promptTokens = 64;
/**
 * Number of texts in the larger batch of an encoder: a compromise between one client, which sends 1 text, and many
 * clients, which send about 32 texts together.
 */
const textsTogether = 4;
/** Maximum number of tokens in a batch. */
export const trialBatchTokens = textsTogether * promptTokens;

/** Returns the workloads for a model whose sequences have at most `context` tokens. */
export function workloadsFor(context: number, generates: boolean): Workloads {
  const tokens = Math.min(promptTokens, Math.floor(context / 2));
  const one: Workload = { rows: 1, tokensPerRow: tokens, steps: 1 };
  // Encoder workloads: one text, as for a single client, and a batch of texts, as for many clients.
  if (!generates) return { prompts: [one, { ...one, rows: textsTogether }], oneRow: null, sixteenRows: null };
  return {
    prompts: [one],
    oneRow: { rows: 1, tokensPerRow: 1, steps: 8 },
    sixteenRows: { rows: trialSequences, tokensPerRow: 1, steps: 2 },
  };
}

export function listed({ prompts, oneRow, sixteenRows }: Workloads): Workload[] {
  return [...prompts, oneRow, sixteenRows].filter((workload) => workload !== null);
}

/** Returns the speeds, from the milliseconds that a step of each workload takes. */
export function speedsOf({ prompts, oneRow, sixteenRows }: Workloads, msOf: (workload: Workload) => number): Speeds {
  const speed = (workload: Workload) => (workload.rows * workload.tokensPerRow * 1000) / msOf(workload);
  return {
    prompt: prompts.length / prompts.reduce((sum, prompt) => sum + 1 / speed(prompt), 0),
    oneRow: oneRow === null ? null : speed(oneRow),
    sixteenRows: sixteenRows === null ? null : speed(sixteenRows),
  };
}
