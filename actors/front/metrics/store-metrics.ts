// Store metrics: the state of the connection to the shared state of the replicas.
import type { StoreStatistics } from "../../../runtime/store/redis/redis-connection.ts";
import type { ScalarMetric } from "../../api/engine-metric.ts";

/** Returns the metrics. `statistics`: null if the state thread does not respond now. */
export function storeMetrics(statistics: StoreStatistics | null): readonly ScalarMetric[] {
  const metric = (name: string, kind: ScalarMetric["kind"], help: string, value: number): ScalarMetric => {
    return { name: `service_store_${name}`, kind, help, samples: [{ labels: {}, value }] };
  };
  const { isConnected, commands, errors, seconds, reconnects } = statistics ?? { ...none };
  return [
    metric(
      "connected",
      "gauge",
      "Whether the shared state (state_url) is connected and answers: 1 or 0",
      isConnected ? 1 : 0,
    ),
    metric("commands_total", "counter", "Commands to the shared state", commands),
    metric("errors_total", "counter", "Commands to the shared state that failed", errors),
    metric("command_seconds_total", "counter", "Time that commands to the shared state took, together", seconds),
    metric("reconnects_total", "counter", "Times that the shared state was connected again after a loss", reconnects),
  ];
}

const none: StoreStatistics = { isConnected: false, commands: 0, errors: 0, seconds: 0, reconnects: 0 };
