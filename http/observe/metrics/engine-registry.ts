// Engine registry: a prom-client registry of engine metrics. prom-client's metric classes do their own counting and cannot be
// set to existing histogram counts. This module therefore creates plain objects with the methods that a registry calls.
import { type Metric, type MetricValueWithName, Registry } from "prom-client";
import type { EngineMetric, LatencyMetric } from "../../../actors/api/engine-metric.ts";

const latencyLabels = ["method", "path", "model", "status"];

/** Creates a registry that exports the engine metrics. */
export function engineRegistry(metrics: readonly EngineMetric[]): Registry {
  const registry = new Registry();
  for (const metric of metrics) {
    const { name, help, kind } = metric;
    const labelNames = kind === "histogram" ? latencyLabels : (metric.labelNames ?? []);
    const values = kind === "histogram" ? histogramValues(metric) : metric.samples;
    const printed = { name, help, type: kind, labelNames, get: async () => ({ name, help, type: kind, values }) };
    registry.registerMetric(printed as unknown as Metric);
  }
  return registry;
}

/**
 * Returns the values of a latency histogram of streamed responses, with cumulative buckets. The labels have the same names as
 * in the request metrics. Method and status are constant, because a streamed response is always a POST with status 200.
 */
function histogramValues({ name, bounds, samples }: LatencyMetric): MetricValueWithName<string>[] {
  return samples.flatMap(({ series, model, counts, sumSeconds }) => {
    const labels = { method: "POST", path: series, model, status: "200" };
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
