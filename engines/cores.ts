// Owns how many cores there are to compute on. Two threads of one core share its arithmetic units, so an engine with a thread
// for each hardware thread is slower than one with a thread a core. No native code: what Linux says in files.
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

const topologyOf = (cpu: number) => `/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`;

/** Cores this process may use; hardware threads where the system does not say which share a core. */
export function physicalCores(): number {
  const limit = availableParallelism();
  return Math.min(countCores(readText) ?? limit, limit);
}

/** Cores of the hardware threads this process is allowed on; null where files do not tell. `read` gives null for no file. */
export function countCores(read: (path: string) => string | null): number | null {
  const [, allowed = ""] = /^Cpus_allowed_list:\s*([\d,-]+)$/m.exec(read("/proc/self/status") ?? "") ?? [];
  // Threads of one core name the same siblings. The allowed ones may include some that are not there.
  const cores = new Set(listed(allowed).flatMap((cpu) => read(topologyOf(cpu))?.trim() ?? []));
  return cores.size === 0 ? null : cores.size;
}

/** The numbers of a list such as `0-3,8`. */
function listed(list: string): number[] {
  return list.split(",").flatMap((range) => {
    const [first = Number.NaN, last = first] = range.split("-").map(Number);
    return first <= last ? Array.from({ length: last - first + 1 }, (_, i) => first + i) : [];
  });
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
