// Settings of a model in a page: engine specification, scheduler limits and speculation. On a server these are settings; here
// they are fixed.
import { defaultStepLimits, type SchedulerLimits } from "../engines/decoding/scheduler/limits.ts";
import { defaultMaxDraftTokens, type SpeculationOptions } from "../engines/decoding/speculation/options.ts";
import type { ModelSpec } from "../engines/engine.ts";

/** Maximum number of answers generated at the same time. */
export const slots = 4;
/** Interval in ms between two messages to the page, which redraws an answer 25 times per second. */
export const frameIntervalMs = 20;
const batchTokens = 512;
/** Size of the KV cache as a multiple of the maximum conversation length, so that branches and other conversations also fit. */
const kvContexts = 2;

/** Tokens are drafted only by prompt lookup, as by default on a server. */
export const speculation = {
  promptLookup: true,
  maxDraftTokens: defaultMaxDraftTokens,
  draftModel: null,
  mtpTokens: null,
  mtpSampling: "auto",
} satisfies SpeculationOptions;

/** A page has only one client, so slots are not shared between clients, and no sequence is swapped out. */
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
