// Hub request: one HTTP request with token, redirects and time limits. Also decides for which responses a retry is
// useful. The token is sent to the hub's own origin only. Called by hub-api.ts and part-transfer.ts, inside
// withRetries.
import { ServerError } from "../../../../runtime/errors.ts";
import { anySignal, cancelled, TemporaryFailure } from "../download/retry.ts";
import type { HubContext } from "./hub-context.ts";
import { fetchFor, proxyOf } from "./proxy.ts";

export interface RequestOptions {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string>>;
  /** true: follow redirects to another host. false or absent: return the redirect itself as the response. */
  readonly leavesHub?: boolean;
}

export interface HubAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Headers of the last response from the hub itself; `headers` may come from a host to which the hub redirects. */
  readonly hubHeaders: Headers;
  /**
   * Body of the response. Throws TemporaryFailure if the connection breaks or stalls. A normal end of the stream does
   * not prove that the body is complete.
   */
  readonly body: AsyncIterable<Uint8Array>;
  /** Cancels the body: its remaining bytes are not received. */
  discard(): Promise<void>;
}

const maxRedirects = 5;
const maxJsonBytes = 32 * 2 ** 20;

/**
 * Sends a request. Returns responses with status 200 to 499. Throws TemporaryFailure for 408, for 429, and for a 4xx
 * status other than 416 from a host to which the hub redirects. Also throws TemporaryFailure for 5xx responses, and for
 * connection failures that may be transient.
 */
export async function sendRequest(
  context: HubContext,
  address: string,
  options: RequestOptions = {},
): Promise<HubAnswer> {
  const watch = createWatch(context);
  let url = new URL(address);
  try {
    const hubOrigin = new URL(context.endpoint).origin;
    let hubHeaders = new Headers();
    for (let redirects = 0; redirects <= maxRedirects; redirects++) {
      const isHub = url.origin === hubOrigin;
      const send = await fetchFor(url, context.environment);
      const response = await send(url, {
        method: options.method ?? "GET",
        redirect: "manual",
        headers: {
          // Byte ranges and sizes refer to the uncompressed content.
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
    const isProxied = proxyOf(url, context.environment) !== null;
    const failure = failureOf(error, watch, isProxied ? " through the proxy" : "");
    watch.abort();
    throw failure;
  }
}

/** Parses the body as JSON; returns null if it is not JSON or too long. */
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
  // The hub signs its redirect targets for a limited time. After they expire, a retry gets a new address from the hub.
  const isStale = !isHub && status >= 400 && status !== 416;
  if (status < 500 && status !== 408 && status !== 429 && !isStale) return;
  await response.body?.cancel();
  const retryAfterMs = readRetryAfter(headers.get("retry-after"));
  const wait = retryAfterMs === null ? "" : `, asking to wait ${Math.ceil(retryAfterMs / 1000)} s`;
  throw new TemporaryFailure(`${url.host} answered ${status}${wait}`, { retryAfterMs });
}

/** Converts a Retry-After header, in seconds or as a date, to milliseconds; null if absent or invalid. */
function readRetryAfter(value: string | null): number | null {
  if (value === null) return null;
  const waitMs = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(waitMs) ? null : Math.max(0, waitMs);
}

/** Aborts a request when the caller's signal fires, or after a time without progress. */
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
        // The timer is stopped while the caller processes a chunk.
        watch.stop();
        yield chunk;
        watch.restart(context.limits.stallMs);
      }
    } catch (error) {
      throw failureOf(error, watch);
    } finally {
      watch.stop();
      // Closes the connection if the caller stops reading before the end of the body.
      watch.abort();
    }
  }
  const discard = async () => {
    watch.abort();
    await response.body?.cancel().catch(() => undefined);
  };
  return { status: response.status, headers: response.headers, hubHeaders, body: read(), discard };
}

function failureOf(error: unknown, watch: Watch, way = ""): Error {
  if (error instanceof ServerError || error instanceof TemporaryFailure) return error;
  if (watch.isSilent) return new TemporaryFailure("it stayed silent for too long", { cause: error });
  if (watch.signal.aborted) return cancelled(error);
  // The message of an error from fetch is only "fetch failed" or "terminated". The original error, at the end of the
  // chain of causes, contains the reason.
  let cause = error;
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause;
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  // If a proxy refuses the connection, the error has the code of an aborted request, and only its message contains the
  // reason.
  const isNamed = typeof code === "string" && code !== "UND_ERR_ABORTED";
  const reason = isNamed ? code : String(cause instanceof Error ? cause.message : cause);
  return new TemporaryFailure(`the connection${way} failed (${reason})`, { cause: error });
}
