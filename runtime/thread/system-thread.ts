// Threads of this process in the operating system: their processor time, which a busy machine does not distort, and their
// priority. Linux only: elsewhere a thread has no number.
import { readFileSync, readlinkSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

/** With this much more niceness, a thread gets about a quarter of a core that another thread wants too. */
const niceness = 5;
const mostNice = 19;

/** The system's number of the calling thread; null: unknown. */
export function threadNumber(): number | null {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** Processor time used by a thread, in ms; null: unknown (some kernels always report 0). */
export function processorMs(thread: number): number | null {
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread}/schedstat`, "latin1").split(" ");
    return Number(nanoseconds) / 1e6 || null;
  } catch {
    return null;
  }
}

/** Lowers a thread's share of a core that the calling thread wants too to about a quarter, for good. */
export function lowerPriority(thread: number): void {
  try {
    setPriority(thread, Math.min(getPriority() + niceness, mostNice));
  } catch {
    // It has ended, or the system refuses: then its priority stays.
  }
}
