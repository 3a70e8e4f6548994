// Main memory that this process may use, within the limit of its container.
import { freemem, totalmem } from "node:os";

/** Returns the bytes of main memory that this process can use now. */
export function availableMemory(): number {
  return process.availableMemory?.() ?? freemem();
}

/** Returns the bytes of main memory that this process can use if nothing else is in memory. */
export function totalMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory?.() || Number.POSITIVE_INFINITY);
}
