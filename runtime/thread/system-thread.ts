// Single threads of this process as Linux knows them: their processor time, as time on the clock says little on a machine
// whose cores all compute, and their priority. Elsewhere a thread has no number.
import { readFileSync, readlinkSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

/** Of two threads that want the same core, one that is so much nicer gets about a quarter. */
const niceness = 5;
const mostNice = 19;

/** The system's number of the calling thread; null where the system does not say. */
export function threadNumber(): number | null {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** Processor time that a thread has had, in ms; null where the system does not say: some kernels always say 0. */
export function processorMs(thread: number): number | null {
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread}/schedstat`, "latin1").split(" ");
    return Number(nanoseconds) / 1e6 || null;
  } catch {
    return null;
  }
}

/** Lowers a thread's share of a core that the calling one wants to about a quarter. It cannot be raised again. */
export function lowerPriority(thread: number): void {
  try {
    setPriority(thread, Math.min(getPriority() + niceness, mostNice));
  } catch {
    // It has ended, or may not: then it is one thread like the others.
  }
}
