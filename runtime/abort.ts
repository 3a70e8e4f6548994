// Waiting that ends when a signal is aborted.
import { deferred } from "./deferred.ts";
import { ServerError } from "./errors.ts";

/** Waits for a promise. Throws cancelled as soon as the signal is aborted; the work of the promise continues. */
export async function orAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = deferred<never>();
  const abort = (): void => aborted.reject(new ServerError("cancelled", "the request was cancelled"));
  signal.addEventListener("abort", abort, { once: true });
  promise.catch(() => {});
  try {
    if (signal.aborted) abort();
    return await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
