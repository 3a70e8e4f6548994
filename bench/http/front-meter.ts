// Meter of the main thread under load: CPU share of the main thread and of the generation threads, and delay of the main
// thread's event loop. The meter measures its own process.
import { performance } from "node:perf_hooks";
import { type LoopDelay, watchLoopDelay } from "../loop-delay.ts";
import { processSeconds, threadSeconds } from "../proc.ts";

export interface FrontCost {
  /** CPU time of the main thread as a share of one core. The next three fields are also shares of one core. */
  readonly front: number;
  readonly agents: number;
  readonly model: number;
  readonly client: number;
  /** Share of the time in which the main thread's event loop was busy. */
  readonly utilization: number;
  readonly delayMs: LoopDelay;
}

export interface MeteredThreads {
  readonly agentsThreads: readonly number[];
  readonly modelPid: number;
  readonly clientPid: number;
}

/** Starts the measurement. The returned function ends it. */
export function meterFront({ agentsThreads, modelPid, clientPid }: MeteredThreads): () => FrontCost {
  const seconds = () => ({
    front: threadSeconds(process.pid, process.pid),
    agents: agentsThreads.reduce((sum, thread) => sum + threadSeconds(process.pid, thread), 0),
    model: processSeconds(modelPid),
    client: processSeconds(clientPid),
  });
  const takeDelay = watchLoopDelay();
  const utilization = performance.eventLoopUtilization();
  const startMs = performance.now();
  const before = seconds();
  return () => {
    const after = seconds();
    const wallSeconds = (performance.now() - startMs) / 1000;
    return {
      front: (after.front - before.front) / wallSeconds,
      agents: (after.agents - before.agents) / wallSeconds,
      model: (after.model - before.model) / wallSeconds,
      client: (after.client - before.client) / wallSeconds,
      utilization: performance.eventLoopUtilization(utilization).utilization,
      delayMs: takeDelay(),
    };
  };
}
