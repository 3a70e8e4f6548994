// Heap limit of worker threads. Node reports the same error if a thread reaches its heap limit and if the process has no memory
// left; this module tells the two apart.
import { readFileSync } from "node:fs";

const mebibyte = 2 ** 20;

/**
 * Returns whether a worker thread with a heap limit of `heapMiB` ended because it reached that limit. Returns false if the process
 * has less than `heapMiB` of address space left (`ulimit -v`; known on Linux only). Call it as soon as the error is reported: the
 * free address space changes later. Does not try to allocate memory, because V8 may abort the process if an allocation fails.
 */
export function hasReachedHeapLimit(error: unknown, heapMiB: number): boolean {
  return (
    (error as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY" && freeAddressSpace() >= heapMiB * mebibyte
  );
}

/** Returns the number of bytes by which the address space of this process may grow; Infinity if it has no known limit. */
function freeAddressSpace(): number {
  try {
    const [, limit] = /^Max address space\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "latin1")) ?? [];
    const [, usedKiB] = /^VmSize:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "latin1")) ?? [];
    return limit === undefined || usedKiB === undefined
      ? Number.POSITIVE_INFINITY
      : Number(limit) - Number(usedKiB) * 1024;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
