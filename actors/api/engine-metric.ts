// Engine metric: a counter or gauge, or a histogram of token latencies. The names are those of the HTTP contract.
export type EngineMetric = ScalarMetric | LatencyMetric;

export interface ScalarMetric {
  readonly name: string;
  readonly kind: "counter" | "gauge";
  readonly help: string;
  readonly samples: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[];
}

export interface LatencyMetric {
  readonly name: string;
  readonly kind: "histogram";
  readonly help: string;
  /** Upper bounds of the buckets, in seconds. A last bucket counts observations above all bounds. */
  readonly bounds: readonly number[];
  readonly samples: readonly LatencySample[];
}

export interface LatencySample extends LatencyCounts {
  /** GenerateRequest.series of the streamed responses. */
  readonly series: string;
  readonly model: string;
}

/** Observations per bucket, not cumulative: one bucket per bound, then one for observations above all bounds. */
export interface LatencyCounts {
  readonly counts: readonly number[];
  readonly sumSeconds: number;
}
