// Free memory: the main memory that this process can still use.
import { freemem } from "node:os";

/** Returns the bytes of main memory that this process can use, within the limit of its container. */
export function availableMemory(): number {
  return process.availableMemory?.() ?? freemem();
}
