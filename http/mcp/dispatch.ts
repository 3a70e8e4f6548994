// Owns the call of one of the app's own routes from inside, as if it had come over a socket: so a tool has the validation,
// the limits, the metrics and the logs of the route, and no code of its own for any of them.
import { ServerError } from "../../runtime/errors.ts";
import type { App } from "../app.ts";
import { errorBody, statusOf } from "../errors.ts";
import type { HttpReply, HttpRequest, StreamSink } from "../server/edge.ts";

/** Most characters of an answer that is put together: it is held several times over while it becomes the result of a call. */
const MAX_BODY_LENGTH = 8 * 2 ** 20;

/** Of the caller's headers, those that say who it is. */
const passedHeaders = ["authorization", "x-api-key", "traceparent", "tracestate"];

export interface InnerRequest {
  readonly path: string;
  readonly body: unknown;
  /** Who asks. */
  readonly caller: HttpRequest;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Is given an answer that comes in pieces; without it, that is put together, up to a length. */
  readonly onPiece?: (text: string) => void;
}

export interface InnerReply {
  readonly status: number;
  /** "" where it was given in pieces. */
  readonly body: string;
}

/** Rejects with `cancelled` once the signal is aborted. */
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
    // It is small, and nobody but the tool's call holds it.
    releaseBody: () => {},
    holdBody: () => () => {},
  };
}

/** `wholeBody`: what was put together of an answer that came in pieces. */
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

/** A body that is put together of its pieces. */
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
