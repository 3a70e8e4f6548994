// Meter of this thread's event loop delay. It wakes the thread every millisecond, so it is for benchmarks only.
import { monitorEventLoopDelay } from "node:perf_hooks";

const resolutionMs = 1;
const nanosecondsPerMs = 1e6;

/** Delays in milliseconds, without the interval of the measurement itself. */
export interface LoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Starts the measurement. The returned function returns the delays since its last call, or since the start. */
export function watchLoopDelay(): () => LoopDelay {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  histogram.enable();
  const late = (nanoseconds: number) => Math.max(0, nanoseconds / nanosecondsPerMs - resolutionMs);
  return () => {
    const delay = {
      p50: late(histogram.percentile(50)),
      p99: late(histogram.percentile(99)),
      max: late(histogram.max),
    };
    histogram.reset();
    return delay;
  };
}
