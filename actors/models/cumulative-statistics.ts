// CumulativeStatistics: the statistics of one model, summed over restarts of its worker (a thread or process). The counters of
// a new worker start at 0, but the counters in the metrics must not decrease. If a worker crashes, its counts since its last
// reply are lost. Before a model is unloaded, its statistics are read once more.
import type { LatencyCounts } from "../api/engine-metric.ts";
import type { ModelStatistics, SeriesLatencies } from "../messages.ts";

export class CumulativeStatistics {
  /** Sums over the workers that have ended. Gauges in these statistics are not used. */
  #before: ModelStatistics | null = null;
  /** The last statistics received from the current worker. */
  #latest: ModelStatistics | null = null;

  /** Records statistics received from the current worker. */
  seen(statistics: ModelStatistics): void {
    this.#latest = statistics;
  }

  /** Call when the current worker has ended. */
  ended(): void {
    this.#before = this.total();
    this.#latest = null;
  }

  /** Returns the totals of all workers and the gauges of the current one; null: no worker has replied yet. */
  total(): ModelStatistics | null {
    const [before, latest] = [this.#before, this.#latest];
    if (before === null) return latest;
    return latest === null
      ? { ...before, ...nothingNow, adapters: { ...before.adapters, loaded: 0 } }
      : added(before, latest);
  }
}

/** Values of the gauges while the model is not loaded. */
const nothingNow = { slots: 0, running: 0, waiting: 0, parked: 0, kvBlocks: { used: 0, total: 0 } };

/** Returns the sums of the totals of `a` and `b`, and the gauges of `b`. */
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
