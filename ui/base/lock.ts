// Locks that all tabs of the browser share. A page without HTTPS, at another address than localhost, has no such locks: there, each
// tab has its own.

/** Names of the locks that this tab holds, where the browser has no locks. */
const held = new Map<string, Promise<unknown>>();

/** Runs `work` when no other holder has the lock. */
export async function withLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  if (navigator.locks !== undefined) return (await navigator.locks.request(name, work)) as T;
  const before = held.get(name);
  const mine = (async () => {
    await before?.catch(() => {});
    return await work();
  })();
  return await hold(name, mine);
}

/** Runs `work` if nobody has the lock. Returns null if somebody has it. */
export async function withFreeLock<T>(name: string, work: () => Promise<T>): Promise<T | null> {
  if (navigator.locks !== undefined) {
    return (await navigator.locks.request(name, { ifAvailable: true }, async (lock) =>
      lock === null ? null : await work(),
    )) as T | null;
  }
  return held.has(name) ? null : await hold(name, work());
}

async function hold<T>(name: string, work: Promise<T>): Promise<T> {
  held.set(name, work);
  try {
    return await work;
  } finally {
    if (held.get(name) === work) held.delete(name);
  }
}
