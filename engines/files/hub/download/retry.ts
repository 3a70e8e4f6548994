// Retries: number of attempts, delays, and the final error. Used for requests and for parts of files.
import { setTimeout as wait } from "node:timers/promises";
import { ServerError } from "../../../../runtime/errors.ts";
import type { HubContext } from "../api/hub-context.ts";

/** A failure after which a retry may succeed. */
export class TemporaryFailure extends Error {
  override readonly name = "TemporaryFailure";
  /** Wait that the server requested, in milliseconds; null if none. */
  readonly retryAfterMs: number | null;

  constructor(message: string, options: { readonly retryAfterMs?: number | null; readonly cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.retryAfterMs = options.retryAfterMs ?? null;
  }
}

/**
 * Calls `attempt`, and repeats it after each TemporaryFailure. If a failed attempt made progress (hasMoved() is true),
 * the count of attempts restarts. Throws `model_source_unreachable` when no attempts are left, `cancelled` if the
 * caller's signal fires, and any other error unchanged.
 */
export async function withRetries<T>(
  context: HubContext,
  attempt: () => Promise<T>,
  hasMoved: () => boolean = () => false,
): Promise<T> {
  const { attempts, maxRetryAfterMs } = context.limits;
  for (let failures = 0; ; ) {
    try {
      return await attempt();
    } catch (error) {
      if (context.signal?.aborted) throw cancelled(error);
      if (!(error instanceof TemporaryFailure)) throw error;
      failures = hasMoved() ? 1 : failures + 1;
      if (failures >= attempts)
        throw givenUp(context, error, attempts === 1 ? "tried once" : `tried ${attempts} times`);
      const asked = error.retryAfterMs ?? 0;
      if (asked > maxRetryAfterMs) throw givenUp(context, error, "it asked for too long a wait");
      await pause(Math.max(asked, delayOf(failures, context)), context.signal);
    }
  }
}

/**
 * Returns the delay before the next attempt. Half of it is random, so that many clients do not retry at the same
 * moment.
 */
function delayOf(failures: number, { limits }: HubContext): number {
  const full = Math.min(limits.maxDelayMs, limits.firstDelayMs * 2 ** (failures - 1));
  return full * (0.5 + Math.random() / 2);
}

/** Waits; throws `cancelled` immediately if the signal fires. */
export async function pause(durationMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await wait(durationMs, undefined, signal === undefined ? {} : { signal });
  } catch (cause) {
    throw cancelled(cause);
  }
}

/** Returns a signal that fires when the first of the two signals fires. */
export function anySignal(own: AbortSignal, outer: AbortSignal | undefined): AbortSignal {
  return outer === undefined ? own : AbortSignal.any([own, outer]);
}

export function cancelled(cause?: unknown): ServerError {
  return new ServerError("cancelled", "the download was cancelled", { cause });
}

function givenUp({ endpoint }: HubContext, failure: TemporaryFailure, reason: string): ServerError {
  const advice = "check the network, or HF_ENDPOINT, or pass a local file: -m /path/to/model.gguf";
  const message = `the hub ${endpoint} cannot be used: ${failure.message} (${reason}); ${advice}`;
  return new ServerError("model_source_unreachable", message, { param: "model_id", cause: failure });
}
