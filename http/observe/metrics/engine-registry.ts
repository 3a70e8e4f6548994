// Owns engine metrics as prom-client prints them. Its own classes count for themselves and cannot be given the counts of a
// histogram, so these are only as much of a metric as a registry asks for.
import { type Metric, type MetricValueWithName, Registry } from "prom-client";
import type { EngineMetric, HistogramMetric } from "../../../actors/api/engine-metric.ts";

/** A registry that has these metrics as they are now. */
export function engineRegistry(metrics: readonly EngineMetric[]): Registry {
  const registry = new Registry();
  for (const metric of metrics) {
    const { name, help, kind } = metric;
    const values = kind === "histogram" ? histogramValues(metric) : metric.samples;
    const printed = { name, help, type: kind, get: async () => ({ name, help, type: kind, values }) };
    registry.registerMetric(printed as unknown as Metric);
  }
  return registry;
}

/** Buckets count what lies below their bound, all smaller ones included. */
function histogramValues({ name, bounds, samples }: HistogramMetric): MetricValueWithName<string>[] {
  return samples.flatMap(({ labels, counts, sumSeconds }) => {
    let below = 0;
    const buckets = [...bounds, "+Inf"].map((le, i) => {
      below += counts[i] ?? 0;
      return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: below };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: sumSeconds },
      { metricName: `${name}_count`, labels, value: below },
    ];
  });
}
