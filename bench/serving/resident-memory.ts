// Sampler of a server's resident memory: all its processes and their descendants. Needs /proc.
import { family, residentKiB } from "../proc.ts";

const intervalMs = 250;

export interface MemorySampler {
  /** Most MiB seen at one time; null where nothing could be read. */
  stop(): number | null;
}

/** Samples until stopped: resident sets, or what `memoryKiB` says of a process. */
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
