// CumulativeStatistics: the statistics of one model, summed over restarts of its worker (a thread or process). The counters of a
// new worker start at 0, but the counters in the metrics must not decrease. If a worker crashes, the counts since its last report
// are lost. Before a model is unloaded, its worker's statistics are read once more.
import type { ModelStatistics, SeriesLatencies } from "../messages.ts";

export class CumulativeStatistics {
  /** Sums over the ended workers, with all gauges set to 0; null = no worker has ended. */
  #before: ModelStatistics | null = null;
  /** The latest statistics received from the current worker; null = none received yet. */
  #latest: ModelStatistics | null = null;

  /** Records statistics received from the current worker. */
  seen(statistics: ModelStatistics): void {
    this.#latest = statistics;
  }

  /** Call when the current worker has ended. */
  ended(): void {
    const total = this.total();
    if (total !== null) {
      const remote = total.remote?.map((counts) => ({ ...counts, up: 0, outstanding: 0 }));
      const adapters = { ...total.adapters, loaded: 0 };
      this.#before = { ...total, ...noGauges, adapters, ...(remote && { remote }) };
    }
    this.#latest = null;
  }

  /** Returns the totals of all workers and the gauges of the current worker; null = no worker has reported yet. */
  total(): ModelStatistics | null {
    const [before, latest] = [this.#before, this.#latest];
    if (before === null || latest === null) return latest ?? before;
    const latencies = sums(bySeries(before.latencies), bySeries(latest.latencies));
    return { ...sums(before, latest), latencies: Object.values(latencies) };
  }
}

/** Values of the gauges while the model is not loaded. */
const noGauges = {
  slots: 0,
  running: 0,
  waiting: 0,
  preempted: 0,
  kvBlocks: { used: 0, total: 0 },
} satisfies Partial<ModelStatistics>;

function bySeries(latencies: readonly SeriesLatencies[]): Readonly<Record<string, SeriesLatencies>> {
  return Object.fromEntries(latencies.map((latency) => [latency.series, latency]));
}

/** Returns the sums of the numbers in two values of the same shape. A field that only one of the values has is kept. */
function sums<T>(a: T, b: T): T {
  if (typeof a === "number" && typeof b === "number") return (a + b) as T;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a ?? b;
  const names = Object.keys({ ...a, ...b }) as (keyof T)[];
  const entries = names.map((name) => [name, sums(a[name], b[name])] as const);
  return (Array.isArray(a) ? entries.map(([, sum]) => sum) : Object.fromEntries(entries)) as T;
}
