// Step statistics: the counters of the step loop, and the snapshot of a model's statistics.
import type { SchedulerStatistics } from "../../engines/decoding/scheduler/limits.ts";
import type { Speculation } from "../../engines/decoding/speculation/speculation.ts";
import type { LoadedModel } from "../../engines/engine.ts";
import type { EndCounts, ModelStatistics } from "../messages.ts";
import { StreamLatencies } from "./stream-latency.ts";

/** Totals since the start of the worker. Times are in milliseconds. */
export class StepStatistics {
  steps = 0;
  tokens = 0;
  promptTokens = 0;
  /** Time spent in the engine's forward passes. */
  engineMs = 0;
  /** Time spent in whole steps: drafts, scheduling, forward pass, sampling, frames. */
  totalMs = 0;
  readonly ended: EndCounts = { stop: 0, length: 0, cancelled: 0, error: 0 };
  readonly latencies = new StreamLatencies();

  /** Returns the totals, and the current numbers of sequences. */
  snapshot(
    { capacity, kv }: LoadedModel,
    scheduled: SchedulerStatistics,
    speculation: Speculation | null,
    adapters: number,
  ): ModelStatistics {
    const { steps, tokens, promptTokens, engineMs, totalMs } = this;
    const { maxSequences, kvBlocks } = capacity;
    const { preemptions, adapterSwitches, prefixes, ...counts } = scheduled;
    const drafts = speculation?.statistics ?? noDrafts;
    return {
      ...{ steps, tokens, promptTokens, engineMs, totalMs },
      slots: maxSequences,
      ...counts,
      preemptions: preemptions.reader,
      memoryPreemptions: preemptions.memory,
      sharePreemptions: preemptions.share,
      ended: { ...this.ended },
      prefixCache: { ...prefixes },
      // The model actor fills in the counters of images and audio.
      encoderCache: { hits: 0, misses: 0 },
      kvBlocks: { used: kvBlocks - kv.freeBlocks, total: kvBlocks },
      adapters: { loaded: adapters, switches: adapterSwitches },
      speculation: { ...drafts, acceptedAt: [...drafts.acceptedAt] },
      latencies: this.latencies.snapshot(),
    };
  }
}

const noDrafts = { drafts: 0, proposed: 0, accepted: 0, dropped: 0, acceptedAt: new Int32Array(0) };
