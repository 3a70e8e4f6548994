// Dispatch: calls a route of the app inside the process, as if the request had come over a socket. A tool call therefore gets
// the validation, limits, metrics and logs of the route.
import { ServerError } from "../../runtime/errors.ts";
import type { App } from "../app.ts";
import { errorBody, statusOf } from "../errors.ts";
import type { HttpReply, HttpRequest, StreamSink } from "../server/edge.ts";

/** Maximum characters of a collected response; limited because its conversion to a tool result makes several copies. */
const MAX_BODY_LENGTH = 8 * 2 ** 20;

/** Headers of the caller that are forwarded: its identity and its trace. */
const passedHeaders = ["authorization", "x-api-key", "traceparent", "tracestate"];

export interface InnerRequest {
  readonly path: string;
  readonly body: unknown;
  readonly caller: HttpRequest;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Receives the pieces of a streamed response. Default: the pieces are collected up to MAX_BODY_LENGTH. */
  readonly onPiece?: (text: string) => void;
}

export interface InnerReply {
  readonly status: number;
  /** Response body; "" if it was passed to onPiece. */
  readonly body: string;
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
    const body = new WholeBody(() => {
      settle(tooLong);
      stop.abort();
    });
    const onPiece = request.onPiece ?? ((text) => body.add(text));
    const inner = innerRequest(request, AbortSignal.any([signal, stop.signal]));
    app.handle(
      inner,
      innerReply(onPiece, () => body.text(), settle, abort),
      null,
    );
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
    // The body is small and only the tool call references it, so it is not counted in the body budget.
    releaseBody: () => {},
    holdBody: () => () => {},
  };
}

/** Creates the reply object that receives the response. `wholeBody` returns the collected text of a streamed response. */
function innerReply(
  onPiece: (text: string) => void,
  wholeBody: () => string,
  settle: (reply: InnerReply) => void,
  abort: () => void,
): HttpReply {
  return {
    send: (status, _headers, body) => settle({ status, body: textOf(body) }),
    stream: (status): StreamSink => {
      const decoder = new TextDecoder();
      return {
        write: (piece) => {
          onPiece(typeof piece === "string" ? piece : decoder.decode(piece, { stream: true }));
          return true;
        },
        keepOpen: () => {},
        drained: () => Promise.resolve(),
        end: () => settle({ status, body: wholeBody() }),
        abort,
      };
    },
  };
}

const tooLong: InnerReply = {
  status: statusOf("invalid_value"),
  body: errorBody({
    code: "invalid_value",
    message: `the answer is longer than ${MAX_BODY_LENGTH} characters, the most that a tool call may return; ask for less at once`,
  }),
};

/** Collects the pieces of a streamed body. */
class WholeBody {
  readonly #onTooLong: () => void;
  #pieces: string[] = [];
  #length = 0;

  constructor(onTooLong: () => void) {
    this.#onTooLong = onTooLong;
  }

  add(piece: string): void {
    this.#length += piece.length;
    if (this.#length <= MAX_BODY_LENGTH) {
      this.#pieces.push(piece);
      return;
    }
    this.#pieces = [];
    this.#onTooLong();
  }

  text(): string {
    return this.#pieces.join("");
  }
}

function textOf(body: string | Uint8Array): string {
  return typeof body === "string" ? body : new TextDecoder().decode(body);
}
