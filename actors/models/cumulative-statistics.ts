// Owns what a model has counted over all its lives: each of its places begins at nothing, and a counter that falls would tell
// whoever reads metrics of traffic there never was. Kept by the front, one a model. What a place counted after it was last
// asked is gone with it; one that is unloaded is asked before.
import type { LatencyCounts } from "../api/engine-metric.ts";
import type { ModelStatistics, SeriesLatencies } from "../messages.ts";

export class CumulativeStatistics {
  /** Of lives that have ended; only its totals mean something. */
  #before: ModelStatistics | null = null;
  /** What the present life answered last. */
  #latest: ModelStatistics | null = null;

  /** The model's place has answered. */
  seen(statistics: ModelStatistics): void {
    this.#latest = statistics;
  }

  /** The model's place has ended. */
  ended(): void {
    this.#before = this.total();
    this.#latest = null;
  }

  /** Totals of all lives, and what is now; null where it has never been asked. */
  total(): ModelStatistics | null {
    const [before, latest] = [this.#before, this.#latest];
    if (before === null) return latest;
    return latest === null
      ? { ...before, ...nothingNow, adapters: { ...before.adapters, loaded: 0 } }
      : added(before, latest);
  }
}

/** A model without a place has no sequences and no memory for any. */
const nothingNow = { slots: 0, running: 0, waiting: 0, parked: 0, kvBlocks: { used: 0, total: 0 } };

/** Totals of both, and the present of the second. */
function added(a: ModelStatistics, b: ModelStatistics): ModelStatistics {
  return {
    ...b,
    preemptions: a.preemptions + b.preemptions,
    memoryPreemptions: a.memoryPreemptions + b.memoryPreemptions,
    sharePreemptions: a.sharePreemptions + b.sharePreemptions,
    steps: a.steps + b.steps,
    tokens: a.tokens + b.tokens,
    promptTokens: a.promptTokens + b.promptTokens,
    engineMs: a.engineMs + b.engineMs,
    totalMs: a.totalMs + b.totalMs,
    ended: sums(a.ended, b.ended),
    prefixCache: sums(a.prefixCache, b.prefixCache),
    adapters: { loaded: b.adapters.loaded, switches: a.adapters.switches + b.adapters.switches },
    speculation: {
      drafts: a.speculation.drafts + b.speculation.drafts,
      proposed: a.speculation.proposed + b.speculation.proposed,
      accepted: a.speculation.accepted + b.speculation.accepted,
      dropped: a.speculation.dropped + b.speculation.dropped,
      acceptedAt: sumsAt(a.speculation.acceptedAt, b.speculation.acceptedAt),
    },
    latencies: latencySums(a.latencies, b.latencies),
  };
}

function sums<Counts extends { readonly [N in keyof Counts]: number }>(a: Counts, b: Counts): Counts {
  const names = Object.keys(a) as (keyof Counts)[];
  return Object.fromEntries(names.map((name) => [name, a[name] + b[name]])) as unknown as Counts;
}

function sumsAt(a: readonly number[], b: readonly number[]): number[] {
  return Array.from({ length: Math.max(a.length, b.length) }, (_, i) => (a[i] ?? 0) + (b[i] ?? 0));
}

function latencySums(a: readonly SeriesLatencies[], b: readonly SeriesLatencies[]): SeriesLatencies[] {
  const names = new Set([...a, ...b].map(({ series }) => series));
  return [...names].map((series) => {
    const [first, second] = [a, b].map((all) => all.find((one) => one.series === series));
    if (first === undefined || second === undefined) return (first ?? second) as SeriesLatencies;
    return {
      series,
      firstToken: countSums(first.firstToken, second.firstToken),
      interToken: countSums(first.interToken, second.interToken),
    };
  });
}

function countSums(a: LatencyCounts, b: LatencyCounts): LatencyCounts {
  return { counts: sumsAt(a.counts, b.counts), sumSeconds: a.sumSeconds + b.sumSeconds };
}
