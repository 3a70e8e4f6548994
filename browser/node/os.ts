// The part of node:os that the engine uses.

/** Memory size in bytes to assume if the browser does not report the machine's memory. */
const assumedBytes = 4 * 2 ** 30;
const usableShare = 0.5;
/** Largest memory size in GiB that browsers report; the machine may have more. */
const largestNamedGiB = 8;

export function availableParallelism(): number {
  return navigator.hardwareConcurrency;
}

/** Returns an estimate of the free memory: a fraction of the machine's memory, because browsers do not report free memory. */
export function freemem(): number {
  const { deviceMemory } = navigator as { readonly deviceMemory?: number };
  return usableShare * (deviceMemory === undefined ? assumedBytes : deviceMemory * 2 ** 30);
}

/** Returns the machine's memory in bytes; infinity if the browser does not report it, or reports the largest possible value. */
export function totalmem(): number {
  const { deviceMemory } = navigator as { readonly deviceMemory?: number };
  const isNamed = deviceMemory !== undefined && deviceMemory < largestNamedGiB;
  return isNamed ? deviceMemory * 2 ** 30 : Number.POSITIVE_INFINITY;
}

export function getPriority(): number {
  return 0;
}

export function setPriority(): void {
  throw new Error("pages cannot set the priority of a thread");
}
