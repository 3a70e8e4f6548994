// Settings of a model in a page: the specification for the engine, the limits of the scheduler, and the speculation. What a server
// leaves to its settings is fixed here.
import { defaultStepLimits, type SchedulerLimits } from "../engines/decoding/scheduler/limits.ts";
import { defaultMaxDraftTokens, type SpeculationOptions } from "../engines/decoding/speculation/options.ts";
import type { ModelSpec } from "../engines/engine.ts";

/** Maximum number of answers that are generated at the same time. */
export const slots = 4;
/** Time in ms between two messages to the page, which shows an answer 25 times a second. */
export const frameIntervalMs = 20;
const batchTokens = 512;
/** Size of the KV cache, as a multiple of the longest conversation. Branches and other conversations share it. */
const kvContexts = 2;

/** As on a server: prompt lookup alone drafts tokens. */
export const speculation = {
  promptLookup: true,
  maxDraftTokens: defaultMaxDraftTokens,
  draftModel: null,
  mtpTokens: null,
  mtpSampling: "auto",
} satisfies SpeculationOptions;

/** A page has one client, so slots need not be shared, and nothing is swapped out. */
export const limits: SchedulerLimits = {
  maxBatchTokens: batchTokens,
  ...defaultStepLimits,
  prefixCacheEntries: 16,
  maxQueue: 16,
  queueTimeoutMs: 0,
  slotShareMs: 0,
  swapBytes: 0,
};

export function specOf(path: string, threads: number, context: number): ModelSpec {
  return {
    path,
    maxSequences: slots,
    maxBatchTokens: batchTokens,
    maxModelLength: context,
    kvBudget: { tokens: context * kvContexts },
    kvType: "auto",
    blockTokens: 32,
    pagedKv: null,
    extraLogitsRows: speculation.maxDraftTokens,
    threads,
    mmap: false,
    gpuLayers: 0,
    abortFlag: null,
    computeLock: null,
  };
}
