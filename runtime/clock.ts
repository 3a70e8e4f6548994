// Owns the notion of time that policies depend on (timeouts, backoff), so that tests can turn the hands themselves.
// Never used to measure how long work takes: that is performance.now().

export interface Clock {
  /** Milliseconds since some fixed moment; never goes back. */
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
