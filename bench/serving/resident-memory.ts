// Sampler of a server's resident memory: all its processes and their descendants. Needs /proc.
import { family, residentKiB } from "../proc.ts";

const intervalMs = 250;

export interface MemorySampler {
  /** Stops, and returns the maximum MiB seen at one time; null if nothing could be read. */
  stop(): number | null;
}

/** Samples resident memory, or the value that `memoryKiB` returns for a process, until stopped. */
export function sampleMemory(pids: readonly number[], memoryKiB = residentKiB): MemorySampler {
  let peakKiB = 0;
  const sample = () => {
    const sum = family(pids).reduce((total, pid) => total + memoryKiB(pid), 0);
    peakKiB = Math.max(peakKiB, sum);
  };
  sample();
  const timer = setInterval(sample, intervalMs);
  return {
    stop: () => {
      clearInterval(timer);
      sample();
      return peakKiB > 0 ? peakKiB / 1024 : null;
    },
  };
}
