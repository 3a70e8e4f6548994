// Operating system threads of this process: their processor time, which does not depend on the load of the machine, and their
// priority. Linux only; on other systems, thread ids are unknown.
import { readFileSync, readlinkSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

/** Increase of the nice value. If another thread competes for the core, the thread then gets about a quarter of the core. */
const niceness = 5;
const mostNice = 19;

/** Returns the operating system's thread id of the calling thread; null if unknown. */
export function threadNumber(): number | null {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return null;
  }
}

/** Returns the processor time that a thread has used, in ms; null if unknown (some kernels always report 0). */
export function processorMs(thread: number): number | null {
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread}/schedstat`, "latin1").split(" ");
    return Number(nanoseconds) / 1e6 || null;
  } catch {
    return null;
  }
}

/** Permanently lowers a thread's priority. The thread then gets about a quarter of a core that the calling thread also uses. */
export function lowerPriority(thread: number): void {
  try {
    setPriority(thread, Math.min(getPriority() + niceness, mostNice));
  } catch {
    // The error is ignored: the thread has ended, or the system does not allow the change. Its priority then stays as it is.
  }
}
