// Locks shared by all tabs of the browser. The Web Locks API exists only on pages with HTTPS and on localhost. On other pages,
// each tab has locks of its own.

/** Locks held by this tab if the browser offers no Web Locks, by name. */
const held = new Map<string, Promise<unknown>>();

/** Waits for the lock, then runs `work` while holding it. */
export async function withLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  if (navigator.locks !== undefined) return (await navigator.locks.request(name, work)) as T;
  const before = held.get(name);
  const mine = (async () => {
    await before?.catch(() => {});
    return await work();
  })();
  return await hold(name, mine);
}

/** Runs `work` while holding the lock. Returns null if the lock is not free. */
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
