// Retries: number of attempts, delays, and the final error. For requests and for parts of files.
import { setTimeout as wait } from "node:timers/promises";
import { ServerError } from "../../../../runtime/errors.ts";
import type { HubContext } from "../api/hub-context.ts";

/** A failure that a retry may not meet again. */
export class TemporaryFailure extends Error {
  override readonly name = "TemporaryFailure";
  /** Wait requested by the server; null if none. */
  readonly retryAfterMs: number | null;

  constructor(message: string, options: { readonly retryAfterMs?: number | null; readonly cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.retryAfterMs = options.retryAfterMs ?? null;
  }
}

/**
 * Calls `attempt` and retries after each TemporaryFailure. An attempt after which `hasMoved` is true does not count.
 * Throws `model_source_unreachable` if the attempts are used up, `cancelled` on the caller's signal, and any other
 * error as it is.
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

/** Half of the delay is random, so that many clients do not return at the same moment. */
function delayOf(failures: number, { limits }: HubContext): number {
  const full = Math.min(limits.maxDelayMs, limits.firstDelayMs * 2 ** (failures - 1));
  return full * (0.5 + Math.random() / 2);
}

/** Waits; throws `cancelled` at once on the signal. */
export async function pause(durationMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await wait(durationMs, undefined, signal === undefined ? {} : { signal });
  } catch (cause) {
    throw cancelled(cause);
  }
}

/** Aborts with the first of the two signals. */
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
