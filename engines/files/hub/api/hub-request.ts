// Hub request: one HTTP request with token, redirects, time limits, and the decision which answers deserve a retry. The
// token is sent to the hub's own origin only. Called by hub-api.ts and part-transfer.ts, inside withRetries.
import { ServerError } from "../../../../runtime/errors.ts";
import { anySignal, cancelled, TemporaryFailure } from "../download/retry.ts";
import type { HubContext } from "./hub-context.ts";

export interface RequestOptions {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string>>;
  /** Follow redirects to another host. Default: the redirect itself is the answer. */
  readonly leavesHub?: boolean;
}

export interface HubAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Headers of the hub's own last answer; `headers` may come from a host it redirects to. */
  readonly hubHeaders: Headers;
  /** Throws TemporaryFailure if the connection breaks or stalls. The end of the stream does not prove completeness. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Cancels the rest of the body. */
  discard(): Promise<void>;
}

const maxRedirects = 5;
const maxJsonBytes = 32 * 2 ** 20;

/** Returns answers 200 to 499 except 408 and 429. Throws TemporaryFailure for other, possibly transient failures. */
export async function sendRequest(
  context: HubContext,
  address: string,
  options: RequestOptions = {},
): Promise<HubAnswer> {
  const watch = createWatch(context);
  try {
    let url = new URL(address);
    const hubOrigin = new URL(context.endpoint).origin;
    let hubHeaders = new Headers();
    for (let redirects = 0; redirects <= maxRedirects; redirects++) {
      const isHub = url.origin === hubOrigin;
      const response = await fetch(url, {
        method: options.method ?? "GET",
        redirect: "manual",
        headers: {
          // Ranges and sizes refer to the uncompressed bytes.
          "accept-encoding": "identity",
          "user-agent": "troupe",
          ...options.headers,
          ...(isHub && context.token !== null ? { authorization: `Bearer ${context.token}` } : {}),
        },
        signal: watch.signal,
      });
      if (isHub) hubHeaders = response.headers;
      const target = redirectTarget(response, url);
      if (target === null || (options.leavesHub === false && target.origin !== hubOrigin)) {
        await refuseTemporary(response, url, isHub);
        return answerOf(response, hubHeaders, watch, context);
      }
      await response.body?.cancel();
      url = target;
    }
    throw new ServerError("model_source_unreachable", `${context.endpoint} redirects more than ${maxRedirects} times`);
  } catch (error) {
    watch.stop();
    const failure = failureOf(error, watch);
    watch.abort();
    throw failure;
  }
}

/** The body as JSON; null if it is not JSON or too long. */
export async function readJson(answer: HubAnswer): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body) {
    bytes += chunk.length;
    if (bytes > maxJsonBytes) return null;
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch {
    return null;
  }
}

function redirectTarget(response: Response, from: URL): URL | null {
  const location = response.headers.get("location");
  if (![301, 302, 303, 307, 308].includes(response.status) || location === null) return null;
  const target = URL.canParse(location, from.href) ? new URL(location, from) : null;
  const isSafe = target !== null && (target.protocol === "https:" || target.protocol === from.protocol);
  if (isSafe) return target;
  throw new ServerError("model_source_unreachable", `${from.host} redirects to an unsafe address`);
}

async function refuseTemporary(response: Response, url: URL, isHub: boolean): Promise<void> {
  const { status, headers } = response;
  // Redirect targets of the hub are signed for a limited time: after an expiry the hub issues a new address.
  const isStale = !isHub && status >= 400 && status !== 416;
  if (status < 500 && status !== 408 && status !== 429 && !isStale) return;
  await response.body?.cancel();
  const retryAfterMs = readRetryAfter(headers.get("retry-after"));
  const wish = retryAfterMs === null ? "" : `, asking to wait ${Math.ceil(retryAfterMs / 1000)} s`;
  throw new TemporaryFailure(`${url.host} answered ${status}${wish}`, { retryAfterMs });
}

/** Retry-After in milliseconds, from seconds or a date; null if absent or invalid. */
function readRetryAfter(value: string | null): number | null {
  if (value === null) return null;
  const waitMs = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(waitMs) ? null : Math.max(0, waitMs);
}

/** Aborts a request on the caller's signal, or after a time without progress. */
interface Watch {
  readonly signal: AbortSignal;
  readonly isSilent: boolean;
  /** Restarts the timer with `limitMs`. */
  restart(limitMs: number): void;
  stop(): void;
  abort(): void;
}

function createWatch(context: HubContext): Watch {
  const silence = new AbortController();
  let isSilent = false;
  const onSilence = () => {
    isSilent = true;
    silence.abort();
  };
  let timer = setTimeout(onSilence, context.limits.answerMs);
  return {
    signal: anySignal(silence.signal, context.signal),
    get isSilent() {
      return isSilent;
    },
    restart: (limitMs) => {
      clearTimeout(timer);
      timer = setTimeout(onSilence, limitMs);
    },
    stop: () => clearTimeout(timer),
    abort: () => silence.abort(),
  };
}

function answerOf(response: Response, hubHeaders: Headers, watch: Watch, context: HubContext): HubAnswer {
  watch.stop();
  async function* read(): AsyncGenerator<Uint8Array> {
    try {
      watch.restart(context.limits.stallMs);
      for await (const chunk of response.body ?? []) {
        // Reading has no time limit.
        watch.stop();
        yield chunk;
        watch.restart(context.limits.stallMs);
      }
    } catch (error) {
      throw failureOf(error, watch);
    } finally {
      watch.stop();
      // A reader that leaves early must not leak the connection.
      watch.abort();
    }
  }
  const discard = async () => {
    watch.abort();
    await response.body?.cancel().catch(() => undefined);
  };
  return { status: response.status, headers: response.headers, hubHeaders, body: read(), discard };
}

function failureOf(error: unknown, watch: Watch): Error {
  if (error instanceof ServerError || error instanceof TemporaryFailure) return error;
  if (watch.isSilent) return new TemporaryFailure("it stayed silent for too long", { cause: error });
  if (watch.signal.aborted) return cancelled(error);
  // fetch only says "fetch failed" or "terminated"; the cause has the reason.
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  const reason = String(code ?? (cause instanceof Error ? cause.message : cause));
  return new TemporaryFailure(`the connection failed (${reason})`, { cause: error });
}
