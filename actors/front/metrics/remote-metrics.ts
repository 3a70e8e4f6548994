// Remote metrics: counters of the upstream servers on which remote models run. The label `url` is the server's address from the settings.
import type { ScalarMetric } from "../../api/engine-metric.ts";
import type { ModelStatistics, RemoteUrlStatistics } from "../../messages.ts";

type Count = Exclude<keyof RemoteUrlStatistics, "url">;

const metrics: readonly (readonly [Count, string, ScalarMetric["kind"], string])[] = [
  ["up", "service_remote_up", "gauge", "1: the server of a remote model gets requests; 0: it has failed"],
  ["outstanding", "service_remote_requests_running", "gauge", "Requests that the server of a remote model computes"],
  ["requests", "service_remote_requests_total", "counter", "Requests sent to the server of a remote model"],
  [
    "failures",
    "service_remote_failures_total",
    "counter",
    "Requests and probes that the server of a remote model failed",
  ],
  ["busy", "service_remote_busy_total", "counter", "Requests that the server of a remote model refused with 429"],
  [
    "retries",
    "service_remote_retries_total",
    "counter",
    "Requests sent again after the server of a remote model failed",
  ],
];

export function remoteMetrics(models: readonly ModelStatistics[]): readonly ScalarMetric[] {
  const byUrl = new Map<string, RemoteUrlStatistics[]>();
  for (const counts of models.flatMap(({ remote = [] }) => remote)) {
    byUrl.set(counts.url, [...(byUrl.get(counts.url) ?? []), counts]);
  }
  return metrics.map(([count, name, kind, help]) => ({
    ...{ name, kind, help, labelNames: ["url"] },
    samples: [...byUrl].map(([url, all]) => {
      const values = all.map((one) => one[count]);
      // Several models may run on one server. The server counts as up if it is up for all of them.
      const value = count === "up" ? Math.min(...values) : values.reduce((sum, one) => sum + one, 0);
      return { labels: { url }, value };
    }),
  }));
}
