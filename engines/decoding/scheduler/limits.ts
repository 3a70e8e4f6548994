// Scheduler limits: the settings of the scheduler and its statistics.
import type { PrefixStatistics } from "../kv/prefix-cache.ts";

export interface StepTarget {
  /** A step with decodes may take this many times as long as the decodes alone. */
  readonly decodeSlowdown: number;
  /** A step without decodes may take this long: cancels and new requests wait for it. */
  readonly maxStepMs: number;
}

export interface StepLimits extends StepTarget {
  /** Tokens in one step, decodes and prompt chunks together. */
  readonly maxBatchTokens: number;
  /** Tokens of one prompt in one step. */
  readonly maxPrefillChunkTokens: number;
  /** Decode-only steps while a prompt waits. */
  readonly maxDecodeStepsBeforePrefill: number;
}

export interface SchedulerLimits extends StepLimits {
  /** Finished sequences whose KV is cached for sequences with the same prefix; 0 = none, and running ones share nothing. */
  readonly prefixCacheEntries: number;
  /** Sequences without a slot: waiting and preempted. */
  readonly maxQueue: number;
  /** Longest wait of a request for its first slot; 0 = no limit. */
  readonly queueTimeoutMs: number;
  /** How long a client waits for a slot before another one with more slots gives one up; 0 = until an answer ends. */
  readonly slotShareMs: number;
  /** Most bytes of KV of preempted sequences that are kept; the rest is computed again. */
  readonly swapBytes: number;
}

/** How often sequences lost their slots: to waiting ones while paused, to others' KV memory, to clients with fewer slots. */
export type Preemptions = Record<"reader" | "memory" | "share", number>;

export interface SchedulerStatistics {
  readonly waiting: number;
  readonly running: number;
  readonly preempted: number;
  readonly preemptions: Readonly<Preemptions>;
  /** Steps with another adapter than the step before, on engines with one adapter a step. */
  readonly adapterSwitches: number;
  readonly prefixes: Readonly<PrefixStatistics>;
}
