// The part of node:os that the engine uses.

/** Memory in bytes that a page may use, if the browser does not say how much the machine has. */
const assumedBytes = 4 * 2 ** 30;
const usableShare = 0.5;
/** Largest number of GiB that a browser names; a machine may have more. */
const largestNamedGiB = 8;

export function availableParallelism(): number {
  return navigator.hardwareConcurrency;
}

/** Returns a part of the machine's memory, because browsers do not say how much is free. */
export function freemem(): number {
  const { deviceMemory } = navigator as { readonly deviceMemory?: number };
  return usableShare * (deviceMemory === undefined ? assumedBytes : deviceMemory * 2 ** 30);
}

/** Returns the machine's memory if the browser says it. Browsers name no number above `largestNamedGiB`. */
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
