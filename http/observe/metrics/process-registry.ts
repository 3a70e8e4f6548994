// Process registry: metrics of this process by prom-client (CPU, memory, heap, file descriptors, garbage collection), and the lag
// of the main thread's event loop.
import { collectDefaultMetrics, Registry } from "prom-client";

/** Interval in ms at which the lag of the event loop is sampled. */
const LAG_SAMPLE_MS = 20;

let registry: Registry | null = null;

/** Returns the registry. It is created once, because all apps in this process share the process's metrics. */
export function processRegistry(): Registry {
  if (registry === null) {
    registry = new Registry();
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LAG_SAMPLE_MS });
  }
  return registry;
}
