// Waiting that ends when a signal is aborted.
import { ServerError } from "./errors.ts";

/** Waits for a promise. Throws cancelled as soon as the signal is aborted; the work of the promise continues. */
export async function orAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  let abort = (): void => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = () => reject(new ServerError("cancelled", "the request was cancelled"));
    signal.addEventListener("abort", abort, { once: true });
  });
  promise.catch(() => {});
  try {
    if (signal.aborted) abort();
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
