// Polled data: data of the server that a page reads at regular intervals while it is shown.
import { useEffect, useState } from "preact/hooks";
import { ask, ServerError } from "../server/client.ts";

export interface Polled<T> {
  /** Last value; null until it has been read. */
  readonly value: T | null;
  /** Error of the last request; null if it succeeded. */
  readonly error: ServerError | null;
  readonly refresh: () => void;
}

/** Reads JSON from `path` every `everyMs` milliseconds while the page is visible; 0: reads it only once. */
export function usePolled<T>(path: string, everyMs: number): Polled<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState<ServerError | null>(null);
  const [count, setCount] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const read = async (): Promise<void> => {
      if (document.hidden) return;
      try {
        const read = await ask<T>(path, { signal: stop.signal });
        setValue(read);
        setError(null);
      } catch (problem) {
        if (!stop.signal.aborted && problem instanceof ServerError) setError(problem);
      }
    };
    void read();
    const timer = everyMs === 0 ? null : setInterval(() => void read(), everyMs);
    return () => {
      stop.abort();
      if (timer !== null) clearInterval(timer);
    };
  }, [path, everyMs, count]);
  return { value, error, refresh: () => setCount(count + 1) };
}
