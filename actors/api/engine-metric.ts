// Engine metric: a counter, gauge or histogram under the name the contract gives it.
export type EngineMetric = ScalarMetric | HistogramMetric;

type Labels = Readonly<Record<string, string>>;

export interface ScalarMetric {
  readonly name: string;
  readonly kind: "counter" | "gauge";
  readonly help: string;
  readonly samples: readonly { readonly labels: Labels; readonly value: number }[];
}

export interface HistogramMetric {
  readonly name: string;
  readonly kind: "histogram";
  readonly help: string;
  /** Upper bounds of its buckets; above them all there is one more. */
  readonly bounds: readonly number[];
  readonly samples: readonly ({ readonly labels: Labels } & LatencyCounts)[];
}

/** Observations by bucket: those of each bound of the histogram, each counted once, and then those above all bounds. */
export interface LatencyCounts {
  readonly counts: readonly number[];
  readonly sumSeconds: number;
}
