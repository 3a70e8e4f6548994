// Scheduler limits: types of the scheduler's settings and statistics.
import type { PrefixStatistics } from "../kv/prefix-cache.ts";

export interface StepTarget {
  /** Maximum time of a step with decodes and prompts, as a multiple of the time of a step with the decodes only. */
  readonly decodeSlowdown: number;
  /**
   * Maximum time of a step without decodes, in ms. It is bounded because cancellations and new
   * requests wait for the end of the step.
   */
  readonly maxStepMs: number;
}

export interface StepLimits extends StepTarget {
  /** Maximum number of tokens in one step, decodes and prompt chunks together. */
  readonly maxBatchTokens: number;
  /** Maximum number of tokens of one prompt in one step. */
  readonly maxPrefillChunkTokens: number;
  /** Maximum number of consecutive decode-only steps while a prompt waits. */
  readonly maxDecodeStepsBeforePrefill: number;
}

/** Default limits of a step; also the limits of a model in a web page. */
export const defaultStepLimits = {
  maxPrefillChunkTokens: 512,
  maxDecodeStepsBeforePrefill: 8,
  decodeSlowdown: 3,
  maxStepMs: 280,
} satisfies Omit<StepLimits, "maxBatchTokens">;

export interface SchedulerLimits extends StepLimits {
  /**
   * Maximum number of finished sequences whose KV is cached for sequences with the same prefix. 0: no cache, and
   * running sequences do not share KV either.
   */
  readonly prefixCacheEntries: number;
  /** Maximum number of sequences without a slot, waiting and preempted together. */
  readonly maxQueue: number;
  /** Maximum time that a request waits for its first slot, in ms; 0: no limit. */
  readonly queueTimeoutMs: number;
  /**
   * Time in ms after which a waiting client gets a slot from a client with more slots. 0: slots
   * become free only when sequences end.
   */
  readonly slotShareMs: number;
  /**
   * Maximum total bytes of swapped-out KV, which is the KV of preempted sequences in main memory. KV above the limit
   * is dropped and computed again.
   */
  readonly swapBytes: number;
}

/**
 * Number of preemptions by cause. reader: the client read too slowly. memory: other sequences needed the KV memory.
 * share: a client with fewer slots got the slot.
 */
export type Preemptions = Record<"reader" | "memory" | "share", number>;

export interface SchedulerStatistics {
  readonly waiting: number;
  readonly running: number;
  readonly preempted: number;
  readonly preemptions: Readonly<Preemptions>;
  /** Number of steps that used a different adapter than the previous step, on engines that run one adapter per step. */
  readonly adapterSwitches: number;
  readonly prefixes: Readonly<PrefixStatistics>;
}
