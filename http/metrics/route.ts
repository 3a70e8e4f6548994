// Owns GET /metrics: the numbers of the engines as Prometheus text. They are asked for when somebody looks.
import { Counter, Gauge, Registry } from "prom-client";
import type { EngineMetric } from "../../actors/engine-metrics.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";

export const metrics: RouteHandler = async (exchange, { inference, config }) => {
  if (config.disableMetrics) {
    throw new ServerError(
      "metrics_disabled",
      "metrics are switched off here; start the server without disable_metrics",
    );
  }
  const registry = new Registry();
  for (const metric of await inference.engineMetrics()) register(registry, metric);
  exchange.send(200, { "content-type": registry.contentType }, await registry.metrics());
};

function register(registry: Registry, { name, kind, help, samples }: EngineMetric): void {
  const labelNames = [...new Set(samples.flatMap(({ labels }) => Object.keys(labels)))];
  const options = { name, help, labelNames, registers: [registry] };
  const metric = kind === "counter" ? new Counter(options) : new Gauge(options);
  for (const { labels, value } of samples) metric.inc(labels, value);
}
