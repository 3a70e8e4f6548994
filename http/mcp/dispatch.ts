// Owns the call of one of the app's own routes from inside, as if it had come over a socket: so a tool has the validation,
// the limits, the metrics and the logs of the route, and no code of its own for any of them.
import { ServerError } from "../../runtime/errors.ts";
import type { App } from "../app.ts";
import type { HttpReply, HttpRequest, StreamSink } from "../edge.ts";

/** Of the caller's headers, those that say who it is. */
const passedHeaders = ["authorization", "x-api-key", "traceparent", "tracestate"];

export interface InnerRequest {
  readonly path: string;
  readonly body: unknown;
  /** Who asks. */
  readonly caller: HttpRequest;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Is given an answer that comes in pieces; without it, that is put together. */
  readonly onPiece?: (text: string) => void;
}

export interface InnerReply {
  readonly status: number;
  /** "" where it was given in pieces. */
  readonly body: string;
}

/** Rejects with `cancelled` once the signal is aborted. */
export function dispatch(app: App, request: InnerRequest): Promise<InnerReply> {
  const { signal, onPiece } = request;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new ServerError("cancelled", "the call was cancelled"));
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    const settle = (reply: InnerReply): void => {
      signal.removeEventListener("abort", abort);
      resolve(reply);
    };
    app.handle(innerRequest(request), innerReply(onPiece, settle, abort), null);
  });
}

function innerRequest({ path, body, caller, requestId, signal }: InnerRequest): HttpRequest {
  const headers = new Map([
    ["content-type", "application/json"],
    ["x-request-id", requestId],
  ]);
  for (const name of passedHeaders) {
    const value = caller.headers.get(name);
    if (value !== undefined) headers.set(name, value);
  }
  const bytes = Buffer.from(JSON.stringify(body));
  return { method: "POST", path, query: "", headers, body: bytes, address: caller.address, signal };
}

function innerReply(
  onPiece: ((text: string) => void) | undefined,
  settle: (reply: InnerReply) => void,
  abort: () => void,
): HttpReply {
  return {
    send: (status, _headers, body) => settle({ status, body: textOf(body) }),
    stream: (status): StreamSink => {
      const decoder = new TextDecoder();
      const pieces: string[] = [];
      const take = onPiece ?? ((text: string) => void pieces.push(text));
      return {
        write: (piece) => {
          take(typeof piece === "string" ? piece : decoder.decode(piece, { stream: true }));
          return true;
        },
        keepOpen: () => {},
        drained: () => Promise.resolve(),
        end: () => settle({ status, body: pieces.join("") }),
        abort,
      };
    },
  };
}

function textOf(body: string | Uint8Array): string {
  return typeof body === "string" ? body : new TextDecoder().decode(body);
}
