// OpenAPI description of GET /metrics.
import type { Operation } from "../../operation.ts";

export const metricsOperation: Operation = {
  id: "getMetrics",
  tag: "Operations",
  summary: "Metrics of requests and engines",
  description:
    "Requests by method, route pattern, model and status (`http_*`), latencies of streams, engine metrics " +
    "(`service_*`), and metrics of the server's process (`process_*`, `nodejs_*`). Health checks, metrics, documents and CORS preflights are not counted.",
  answers: {
    200: [
      { contentType: "text/plain; version=0.0.4; charset=utf-8", description: "The Prometheus text exposition format" },
    ],
  },
  errors: ["metrics_disabled"],
};
