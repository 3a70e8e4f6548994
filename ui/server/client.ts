// HTTP client of the server that serves this page. URLs are relative to the page, because a proxy may add a path prefix.
import { signal } from "@preact/signals";
import { isText, preference } from "../base/preference.ts";

/** Error of a request that the server rejected, or that did not reach the server. */
export class ServerError extends Error {
  /** Error code from the server, or "unreachable". */
  readonly code: string;
  /** HTTP status; 0: the server was not reached. */
  readonly status: number;

  constructor(message: string, code: string, status: number) {
    super(message);
    this.name = "ServerError";
    this.code = code;
    this.status = status;
  }
}

/** API key for the server; "" if none. It is stored in this browser. */
export const apiKey = preference("apiKey", "", isText);
/** Whether the server has rejected the API key, or requires one. */
export const needsKey = signal(false);
/** Whether the last request reached the server. */
export const isReachable = signal(true);

const base = new URL(document.baseURI).pathname.replace(/ui\/?$/, "");

export interface Ask {
  readonly method?: "GET" | "POST" | "PUT" | "DELETE";
  /** Request body. Forms are sent unchanged, other objects as JSON. */
  readonly body?: object;
  readonly signal?: AbortSignal;
}

/** Sends a request. Throws ServerError if the response is an error, or the abort reason if `signal` is aborted. */
export async function request(path: string, { method = "GET", body, signal: stop }: Ask = {}): Promise<Response> {
  const isForm = body instanceof FormData;
  const headers = {
    ...(body === undefined || isForm ? {} : { "content-type": "application/json" }),
    ...(apiKey.value === "" ? {} : { authorization: `Bearer ${apiKey.value}` }),
  };
  const content = body === undefined ? null : isForm ? body : JSON.stringify(body);
  let response: Response;
  try {
    response = await fetch(`${base}${path}`, { method, headers, body: content, signal: stop ?? null });
  } catch (error) {
    if (stop?.aborted) throw error;
    isReachable.value = false;
    throw new ServerError("the server cannot be reached", "unreachable", 0);
  }
  isReachable.value = true;
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.code === "invalid_api_key") needsKey.value = true;
  throw problem;
}

/** Sends a request and returns the JSON of the response. */
export async function ask<T>(path: string, options: Ask = {}): Promise<T> {
  return (await (await request(path, options)).json()) as T;
}

async function problemOf(response: Response): Promise<ServerError> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text) as {
      readonly error: string | { readonly message: string; readonly code: string };
    };
    if (typeof error === "string") return new ServerError(error, "unknown", response.status);
    return new ServerError(error.message, error.code, response.status);
  } catch {
    return new ServerError(text.slice(0, 300) || response.statusText, "unknown", response.status);
  }
}
