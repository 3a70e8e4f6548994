// Dispatch: calls a route of the app inside the process, as if an HTTP request had arrived. Tool calls thus get the validation,
// limits, metrics and logs of the route.
import { ServerError } from "../../runtime/errors.ts";
import type { App } from "../app.ts";
import { errorBody, statusOf } from "../errors.ts";
import type { OnEvents } from "../observe/instrumented-inference.ts";
import type { HttpReply, HttpRequest, ReplyHeaders, StreamSink } from "../server/edge.ts";
import { UNKNOWN_FIELDS_HEADER } from "../shared/unknown-fields.ts";

/** Maximum characters of a collected response body; limited because the conversion to a tool result makes several copies. */
const MAX_BODY_LENGTH = 8 * 2 ** 20;

/** Headers of the caller that are forwarded to the route: host, API key and trace context. */
const passedHeaders = ["host", "authorization", "x-api-key", "traceparent", "tracestate"];

export interface InnerRequest {
  readonly path: string;
  readonly body: unknown;
  readonly caller: HttpRequest;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Receives the events of the route's generation. */
  readonly onEvents?: OnEvents;
}

export interface InnerReply {
  readonly status: number;
  readonly body: string;
  /** Unknown fields of the request body; null if there are none. */
  readonly ignored: string | null;
}

/** Runs the route and returns its response. Rejects with `cancelled` once the signal is aborted. */
export function dispatch(app: App, request: InnerRequest): Promise<InnerReply> {
  const { signal } = request;
  return new Promise((resolve, reject) => {
    const stop = new AbortController();
    const abort = (): void => reject(new ServerError("cancelled", "the call was cancelled"));
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    const settle = (reply: InnerReply): void => {
      signal.removeEventListener("abort", abort);
      resolve(reply);
    };
    const onTooLong = (): void => {
      settle(tooLong);
      stop.abort();
    };
    const inner = innerRequest(request, AbortSignal.any([signal, stop.signal]));
    app.handle(inner, innerReply(settle, onTooLong, abort), null, request.onEvents);
  });
}

function innerRequest({ path, body, caller, requestId }: InnerRequest, signal: AbortSignal): HttpRequest {
  const headers = new Map([
    ["content-type", "application/json"],
    ["x-request-id", requestId],
  ]);
  for (const name of passedHeaders) {
    const value = caller.headers.get(name);
    if (value !== undefined) headers.set(name, value);
  }
  const bytes = Buffer.from(JSON.stringify(body));
  return {
    method: "POST",
    path,
    query: "",
    headers,
    body: bytes,
    bodyBytes: bytes.byteLength,
    address: caller.address,
    signal,
    // The body is small and only the tool call references it, so it is not counted in the body budget (the memory limit of all
    // bodies).
    releaseBody: () => {},
    holdBody: () => () => {},
  };
}

/** Creates the reply that receives the route's response and joins the pieces of a long response. */
function innerReply(settle: (reply: InnerReply) => void, onTooLong: () => void, abort: () => void): HttpReply {
  return {
    send: (status, headers: ReplyHeaders, body) => settle({ status, body: textOf(body), ignored: ignoredIn(headers) }),
    stream: (status, headers: ReplyHeaders): StreamSink => {
      const decoder = new TextDecoder();
      let body = "";
      return {
        write: (piece) => {
          body += typeof piece === "string" ? piece : decoder.decode(piece, { stream: true });
          if (body.length > MAX_BODY_LENGTH) onTooLong();
          return true;
        },
        keepOpen: () => {},
        drained: () => Promise.resolve(),
        end: () => settle({ status, body, ignored: ignoredIn(headers) }),
        abort,
      };
    },
  };
}

const tooLong: InnerReply = {
  status: statusOf("invalid_value"),
  ignored: null,
  body: errorBody({
    code: "invalid_value",
    message: `the answer is longer than ${MAX_BODY_LENGTH} characters, the most that a tool call may return; ask for less at once`,
  }),
};

function ignoredIn(headers: ReplyHeaders): string | null {
  return headers[UNKNOWN_FIELDS_HEADER] ?? null;
}

function textOf(body: string | Uint8Array): string {
  return typeof body === "string" ? body : new TextDecoder().decode(body);
}
