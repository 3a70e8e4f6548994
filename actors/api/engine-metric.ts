// Engine metric: a counter or gauge under its name in the contract, or a histogram of token latencies.
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
  /** Upper bounds of the buckets, in seconds; a last bucket takes what is above them all. */
  readonly bounds: readonly number[];
  readonly samples: readonly LatencySample[];
}

export interface LatencySample extends LatencyCounts {
  /** GenerateRequest.series of the streamed answers. */
  readonly series: string;
  readonly model: string;
}

/** Observations by bucket, each counted once: a bucket for each bound, then one for those above all bounds. */
export interface LatencyCounts {
  readonly counts: readonly number[];
  readonly sumSeconds: number;
}
