// Clock: the time source of policies (timeouts, backoff). Tests can replace it. The duration of work is measured with
// performance.now() instead.

export interface Clock {
  /** Returns milliseconds since a fixed moment. The value never decreases. */
  now(): number;
  /** Calls back once after `delayMs`. Returns a function that cancels the call. */
  setTimeout(callback: () => void, delayMs: number): () => void;
}

export const realClock: Clock = {
  now: () => performance.now(),
  setTimeout(callback, delayMs) {
    const timer = setTimeout(callback, delayMs);
    return () => clearTimeout(timer);
  },
};

/**
 * Returns milliseconds since 1970. The system clock is read only at the start of the process, so
 * later clock changes have no effect.
 */
export function wallTime(): number {
  return performance.timeOrigin + performance.now();
}

/** Waits for a promise, at most `limitMs`. Returns whether it has resolved. */
export async function resolvesWithin(limitMs: number, promise: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, limitMs, false);
  });
  try {
    return await Promise.race([promise.then(() => true), limit]);
  } finally {
    clearTimeout(timer);
  }
}
