// Clock: the time that policies depend on (timeouts, backoff), which tests can replace. The duration of work is measured with
// performance.now() instead.

export interface Clock {
  /** Milliseconds since a fixed moment; never goes back. */
  now(): number;
  /** Calls back once after `delayMs`; returns a function that cancels. */
  setTimeout(callback: () => void, delayMs: number): () => void;
}

export const realClock: Clock = {
  now: () => performance.now(),
  setTimeout(callback, delayMs) {
    const timer = setTimeout(callback, delayMs);
    return () => clearTimeout(timer);
  },
};

/** Milliseconds since 1970, by the system clock when the process started; runs evenly from then on. */
export function wallTime(): number {
  return performance.timeOrigin + performance.now();
}
