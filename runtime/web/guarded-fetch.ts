// Guarded fetch: fetches a URL that a client or a model chose. Accepts only http and https and only allowed addresses,
// also after redirects. Limits the size, the time, the headers and the redirects.
import type { IncomingHttpHeaders } from "node:http";
import { ServerError } from "../errors.ts";
import { acceptedEncodings, readBody } from "./body.ts";
import { type ConnectionGuard, checkedUrl, opened, publicGuard } from "./connection.ts";
import { type FetchLimits, refused } from "./limits.ts";

/** Name of the server in requests and in robots.txt. */
export const userAgent = "troupe";

export interface FetchRequest {
  readonly url: string;
  /** HTTP method. A redirect repeats the request, so the limits of a POST must allow no redirects. */
  readonly method?: "GET" | "POST";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly limits: FetchLimits;
  /** Called before each hop: before the first request and before each redirect. Rejects to refuse the URL. */
  readonly beforeHop?: (url: URL, signal: AbortSignal) => Promise<void>;
  /** Called with the URL, status and headers of the last response. Throws to refuse the response. */
  readonly checkHead: (head: ResponseHead) => void;
}

export interface ResponseHead {
  /** URL of the last request, after all redirects. */
  readonly url: URL;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
}

export interface Fetched extends ResponseHead {
  readonly body: Uint8Array;
}

export class GuardedFetcher {
  readonly #guard: ConnectionGuard;

  constructor(guard: ConnectionGuard = publicGuard) {
    this.#guard = guard;
  }

  /**
   * Fetches a URL. Throws invalid_value if the URL is not allowed, the response exceeds a limit, or the server cannot be reached;
   * cancelled after the signal is aborted.
   */
  async fetch(request: FetchRequest, signal: AbortSignal): Promise<Fetched> {
    const { totalMs } = request.limits;
    const ended = new AbortController();
    const end = (): void => ended.abort();
    const timer = setTimeout(end, totalMs);
    signal.addEventListener("abort", end, { once: true });
    try {
      if (signal.aborted) throw cancelled();
      return await this.#follow(request, ended.signal);
    } catch (error) {
      if (signal.aborted) throw cancelled();
      if (error instanceof ServerError) throw error;
      if (ended.signal.aborted) throw refused(`no whole response came within ${totalMs} ms`);
      throw refused(`it cannot be fetched: ${reasonOf(error)}`, error);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      // Ends a connection whose response was not read to its end.
      end();
    }
  }

  async #follow(request: FetchRequest, signal: AbortSignal): Promise<Fetched> {
    const { limits, method = "GET", body = null } = request;
    const headers = { "user-agent": userAgent, "accept-encoding": acceptedEncodings, ...request.headers };
    let url = checkedUrl(request.url, null, this.#guard);
    for (let redirects = 0; ; redirects++) {
      await request.beforeHop?.(url, signal);
      const hop = { url, method, headers, body, headersMs: limits.headersMs };
      const response = await opened(hop, this.#guard, signal);
      const { statusCode: status = 0, headers: received } = response;
      if (!isRedirect(status) || received.location === undefined) {
        request.checkHead({ url, status, headers: received });
        return { url, status, headers: received, body: await readBody(response, limits, signal) };
      }
      response.destroy();
      if (redirects >= limits.redirects) throw refused(`expected at most ${limits.redirects} redirects, got more`);
      url = checkedUrl(received.location, url, this.#guard);
    }
  }
}

function isRedirect(status: number): boolean {
  return [301, 302, 303, 307, 308].includes(status);
}

function reasonOf(error: unknown): string {
  return error instanceof Error && error.message !== "" ? error.message : String((error as { code?: unknown }).code);
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while a URL was fetched");
}
