// Engine metric: a counter or gauge, or a histogram of token latencies. Names and labels are part of the HTTP API.
export type EngineMetric = ScalarMetric | LatencyMetric;

export interface ScalarMetric {
  readonly name: string;
  readonly kind: "counter" | "gauge";
  readonly help: string;
  /** Names of the labels; absent = no labels. */
  readonly labelNames?: readonly string[];
  readonly samples: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[];
}

export interface LatencyMetric {
  readonly name: string;
  readonly kind: "histogram";
  readonly help: string;
  /** Upper bounds of the buckets, in seconds. An extra last bucket counts observations above all bounds. */
  readonly bounds: readonly number[];
  readonly samples: readonly LatencySample[];
}

export interface LatencySample extends LatencyCounts {
  /** Name of the group of streamed responses that are counted together (GenerateRequest.series). */
  readonly series: string;
  readonly model: string;
}

/** Observations per bucket, not cumulative: one bucket per bound, then one for observations above all bounds. */
export interface LatencyCounts {
  readonly counts: readonly number[];
  readonly sumSeconds: number;
}
