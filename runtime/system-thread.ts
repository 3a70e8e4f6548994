// Single threads of this process as Linux knows them: their processor time, as time on the clock says little on a machine
// whose cores all compute, and their priority. Elsewhere a thread has no number.
import { readFileSync, readlinkSync } from "node:fs";
import { setPriority } from "node:os";

/** Of two threads that want the same core, one with this priority gets about a quarter. */
const lowPriority = 5;

/** The system's number of the calling thread; null where the system does not say. */
export function threadNumber(): number | null {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** Processor time that a thread has had, in ms; null where the system does not say. */
export function processorMs(thread: number): number | null {
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread}/schedstat`, "latin1").split(" ");
    return Number(nanoseconds) / 1e6;
  } catch {
    return null;
  }
}

/** Lowers a thread's share of a core that others want to about a quarter. It cannot be raised again. */
export function lowerPriority(thread: number): void {
  try {
    setPriority(thread, lowPriority);
  } catch {
    // It has ended, or may not: then it is one thread like the others.
  }
}
