// Owns one request and its one answer: adds the headers every answer has, turns errors into the envelope, and tells those
// who keep account of requests. Made by the app for each request; protocol routes see HTTP only through it.
import { type ErrorCode, type ErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import { commonErrors, type ErrorFormat, errorHeaders, requestIdHeaders } from "./errors.ts";
import type { Generation } from "./observe/instrumented-inference.ts";
import type { Log } from "./observe/log.ts";
import { requestId } from "./observe/request-id.ts";
import type { DescribedRoute, PathParameters } from "./route.ts";
import type { HttpReply, HttpRequest, ReplyHeaders, StreamSink } from "./server/edge.ts";

/** Told of each request: the access log, the metrics, the request log, traces. */
export interface ExchangeObserver {
  /** A request has come; its route is known, its model is not. */
  began?(exchange: Exchange): void;
  /** It has ended, answered or not. Must not throw. */
  ended(exchange: Exchange): void;
}

export interface ExchangeOptions {
  readonly log: Log;
  readonly disableRequestIdHeader: boolean;
  /** Pages of these may read answers; null: of any. */
  readonly corsOrigins: readonly string[] | null;
  readonly observers: readonly ExchangeObserver[];
}

/** The status of a request whose client went away before it was answered. */
export const CLIENT_GONE = 499;

export const jsonHeaders = { "content-type": "application/json" };

export const eventStreamHeaders = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
};

export class Exchange {
  readonly request: HttpRequest;
  readonly id: string;
  /** When the request came, in milliseconds since 1970. */
  readonly receivedAt = Date.now();
  /** The model it asks something of, by its own id, once known. */
  model = "";
  /** What it has the model generate, once it does. */
  generation: Generation | null = null;
  /** Is given all that is answered, as it leaves. */
  tap: ((body: string | Uint8Array) => void) | null = null;
  /** Of an answer that failed before it began. */
  errorCode: ErrorCode | null = null;
  /** null where the table has none for the request. */
  route: DescribedRoute | null = null;
  parameters: PathParameters = {};
  #errors: ErrorFormat = commonErrors;
  readonly #reply: HttpReply;
  readonly #options: ExchangeOptions;
  readonly #startedAt = performance.now();
  #status = CLIENT_GONE;
  #sentBytes = 0;
  #isStream = false;
  #isWhole = false;

  constructor(request: HttpRequest, reply: HttpReply, options: ExchangeOptions) {
    this.request = request;
    this.#reply = reply;
    this.#options = options;
    this.id = requestId(request.headers.get("x-request-id"));
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt;
  }

  get status(): number {
    return this.#status;
  }

  /** Its answer is a stream of events, which has begun. */
  get isStream(): boolean {
    return this.#isStream;
  }

  /** Its answer has been given to its end. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Bytes of the answer's body, those of a client that has gone included. */
  get sentBytes(): number {
    return this.#sentBytes;
  }

  /** What is known before the handler runs is known. */
  begin(): void {
    for (const observer of this.#options.observers) observer.began?.(this);
  }

  /** The table has a route for the request. */
  matched(route: DescribedRoute, parameters: PathParameters): void {
    this.route = route;
    this.parameters = parameters;
    if (route.errors !== undefined) this.#errors = route.errors;
  }

  json(status: number, value: unknown): void {
    this.send(status, jsonHeaders, JSON.stringify(value));
  }

  text(status: number, text: string): void {
    this.send(status, { "content-type": "text/plain; charset=utf-8" }, text);
  }

  send(status: number, headers: ReplyHeaders, body: string | Uint8Array): void {
    this.#status = status;
    this.#isWhole = true;
    this.#observe(body);
    this.#reply.send(status, this.#withCommon(headers), body);
  }

  /** Answers with the error's status and envelope. What is not a ServerError is our own fault: logged, not shown. */
  fail(thrown: unknown, headers: ReplyHeaders = {}, format: ErrorFormat = this.#errors): void {
    this.#errors = format;
    // With the client gone there is nobody to tell, and what was thrown is most likely only that.
    if (this.request.signal.aborted) return;
    const error = thrown instanceof ServerError ? toErrorRecord(thrown) : this.unexpected(thrown);
    this.errorCode = error.code;
    const head = { ...jsonHeaders, ...errorHeaders(error), ...headers };
    this.send(format.statusOf(error.code), head, format.body(error, this.id));
  }

  /** Logs a thrown value that is no ServerError and gives the error to show instead. */
  unexpected(thrown: unknown): ErrorRecord {
    this.#options.log.error({ requestId: this.id, err: thrown }, "a request failed unexpectedly");
    return { code: "internal", message: `internal error; the server's log has it under request id ${this.id}` };
  }

  /** Begins a stream of server-sent events. */
  openEventStream(headers: ReplyHeaders = {}): StreamSink {
    return this.openStream({ ...eventStreamHeaders, ...headers });
  }

  /** Begins an answer of several pieces. */
  openStream(headers: ReplyHeaders): StreamSink {
    this.#status = 200;
    this.#isStream = headers["content-type"] === eventStreamHeaders["content-type"];
    const sink = this.#reply.stream(200, this.#withCommon(headers));
    return this.#isObserved ? this.#observed(sink) : sink;
  }

  /** The request has ended, answered or not. */
  finish(): void {
    for (const observer of this.#options.observers) observer.ended(this);
  }

  #withCommon(headers: ReplyHeaders): ReplyHeaders {
    const names = requestIdHeaders(this.#errors);
    const common: Record<string, string> = {
      "access-control-allow-origin": "*",
      "access-control-expose-headers": names.join(", "),
      ...headers,
    };
    const { corsOrigins } = this.#options;
    if (corsOrigins !== null) this.#restrictOrigin(common, corsOrigins);
    if (!this.#options.disableRequestIdHeader) for (const name of names) common[name] = this.id;
    return common;
  }

  /** Where some origins are listed, others are told none; and caches must not give one page the answer to another. */
  #restrictOrigin(headers: Record<string, string>, corsOrigins: readonly string[]): void {
    const origin = this.request.headers.get("origin");
    headers.vary = "origin";
    if (origin !== undefined && corsOrigins.includes(origin)) headers["access-control-allow-origin"] = origin;
    else delete headers["access-control-allow-origin"];
  }

  get #isObserved(): boolean {
    return this.#options.observers.length > 0;
  }

  #observe(body: string | Uint8Array): void {
    if (!this.#isObserved) return;
    this.#sentBytes += Buffer.byteLength(body);
    this.tap?.(body);
  }

  #observed(sink: StreamSink): StreamSink {
    return {
      write: (piece) => {
        this.#observe(piece);
        return sink.write(piece);
      },
      keepOpen: () => sink.keepOpen(),
      drained: () => sink.drained(),
      end: () => {
        this.#isWhole = true;
        sink.end();
      },
      abort: () => sink.abort(),
    };
  }
}
