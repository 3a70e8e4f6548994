// Processor time of single threads, as Linux counts it: time on the clock says little on a machine whose cores all compute.
import { readFileSync, readlinkSync } from "node:fs";

/** The system's number of the calling thread; null where the system does not say. */
export function threadNumber(): number | null {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** Processor time that a thread of this process has had, in ms; null where the system does not say. */
export function processorMs(thread: number): number | null {
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread}/schedstat`, "latin1").split(" ");
    return Number(nanoseconds) / 1e6;
  } catch {
    return null;
  }
}
