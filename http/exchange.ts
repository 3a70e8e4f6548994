// Exchange: one HTTP request and its response. Adds the common headers, converts errors to error bodies, and notifies the
// observers. The app creates one for each request; protocol routes access HTTP only through it.
import { isOutOfDescriptors } from "../runtime/descriptor-errors.ts";
import { type ErrorCode, type ErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import { commonErrors, type ErrorFormat, errorHeaders, requestIdHeaders } from "./errors.ts";
import type { Generation } from "./observe/instrumented-inference.ts";
import type { Log } from "./observe/log.ts";
import { requestId } from "./observe/request-id.ts";
import type { DescribedRoute, PathParameters } from "./route.ts";
import type { HttpReply, HttpRequest, ListedHeaders, ReplyHeaders, StreamSink } from "./server/edge.ts";
import { UNKNOWN_FIELDS_HEADER } from "./shared/unknown-fields.ts";
import { hasVersionHeader } from "./shared/version-header.ts";

/** Observer of requests, for example the access log, metrics, request log or tracing. */
export interface ExchangeObserver {
  /** Called when the route of the request is known. The request's model is not known yet. */
  began?(exchange: Exchange): void;
  /** Called when the request has ended, whether or not a response was sent. Must not throw. */
  ended(exchange: Exchange): void;
}

export interface ExchangeOptions {
  readonly log: Log;
  readonly disableRequestIdHeader: boolean;
  /** Origins whose pages may read responses; null: all origins. */
  readonly corsOrigins: readonly string[] | null;
  readonly observers: readonly ExchangeObserver[];
}

/** Logged status of a request whose client disconnected before a response was sent. */
export const CLIENT_GONE = 499;

const SWITCHING_PROTOCOLS = 101;

export const jsonHeaders = { "content-type": "application/json" };

export const eventStreamHeaders = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
};

/** Headers of a stream with one JSON value per line (NDJSON). */
export const lineStreamHeaders = { ...eventStreamHeaders, "content-type": "application/x-ndjson" };

export class Exchange {
  readonly request: HttpRequest;
  readonly id: string;
  /** Time when the request arrived, in milliseconds since 1970. */
  readonly receivedAt = Date.now();
  /** Id of the request's model; "" until it is known. */
  model = "";
  /** Outcome of the request's inference; null until inference has started. */
  generation: Generation | null = null;
  /** Called with each piece of the response body. */
  tap: ((body: string | Uint8Array) => void) | null = null;
  /** Error code of the response; null if the response is not an error. */
  errorCode: ErrorCode | null = null;
  /** Route of the request; null if the request matches no route. */
  route: DescribedRoute | null = null;
  parameters: PathParameters = {};
  /** Unknown fields of the request body, as the value of a response header; null if there are none. */
  unknownFields: string | null = null;
  #errors: ErrorFormat = commonErrors;
  readonly #reply: HttpReply;
  readonly #options: ExchangeOptions;
  readonly #startedAt = performance.now();
  #status = CLIENT_GONE;
  #sentBytes = 0;
  #streamType: string | string[] | null = null;
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

  /** Whether the response is an event stream that has begun. */
  get isStream(): boolean {
    return this.#streamType === eventStreamHeaders["content-type"];
  }

  /** Whether the response is a stream of JSON lines that has begun. */
  get isLineStream(): boolean {
    return this.#streamType === lineStreamHeaders["content-type"];
  }

  /** Whether the response is complete. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Number of response body bytes, including bytes written after the client disconnected. */
  get sentBytes(): number {
    return this.#sentBytes;
  }

  /** Notifies the observers that the request begins. Call it when the route is known, before the handler runs. */
  begin(): void {
    for (const observer of this.#options.observers) observer.began?.(this);
  }

  matched(route: DescribedRoute, parameters: PathParameters): void {
    this.route = route;
    this.parameters = parameters;
    const { errors = commonErrors, versionErrors = errors } = route;
    this.#errors = hasVersionHeader(this.request) ? versionErrors : errors;
  }

  json(status: number, value: unknown): void {
    this.send(status, jsonHeaders, JSON.stringify(value));
  }

  text(status: number, text: string): void {
    this.send(status, { "content-type": "text/plain; charset=utf-8" }, text);
  }

  send(status: number, headers: ListedHeaders, body: string | Uint8Array): void {
    this.#status = status;
    this.#isWhole = true;
    this.#observe(body);
    this.#reply.send(status, this.#withCommon(headers), body);
  }

  /** Sends an error response. An error that is not a ServerError is logged, and the client sees the code `internal`. */
  fail(thrown: unknown, headers: ReplyHeaders = {}, format: ErrorFormat = this.#errors): void {
    this.#errors = format;
    // If the client has disconnected, no response can be sent. The disconnect is then also the most likely cause of the error.
    if (this.request.signal.aborted) return;
    const error = thrown instanceof ServerError ? toErrorRecord(thrown) : this.unexpected(thrown);
    // Its message has no paths, but operators need them.
    if (thrown instanceof ServerError && thrown.code === "storage_unavailable" && thrown.cause !== undefined)
      this.#options.log.warn({ requestId: this.id, err: thrown.cause }, "storage was unavailable to a request");
    this.errorCode = error.code;
    const head = { ...jsonHeaders, ...errorHeaders(error), ...headers };
    this.send(format.statusOf(error.code), head, format.body(error, this.id));
  }

  /** Logs a thrown value that is not a ServerError. Returns the error to send instead. */
  unexpected(thrown: unknown): ErrorRecord {
    this.#options.log.error({ requestId: this.id, err: thrown }, "a request failed unexpectedly");
    if (isOutOfDescriptors(thrown)) {
      return { code: "storage_unavailable", message: "the server has too many open files now; try again soon" };
    }
    return { code: "internal", message: `internal error; details are in the server log under request id ${this.id}` };
  }

  /** Begins a stream of server-sent events. */
  openEventStream(headers: ReplyHeaders = {}): StreamSink {
    return this.openStream({ ...eventStreamHeaders, ...headers });
  }

  /** Begins a response that is sent in pieces. */
  openStream(headers: ListedHeaders): StreamSink {
    this.#status = 200;
    this.#streamType = headers["content-type"] ?? null;
    const sink = this.#reply.stream(200, this.#withCommon(headers));
    return this.#isObserved ? this.#observed(sink) : sink;
  }

  /** Upgrades the connection to a WebSocket. Sends an error response if the upgrade is refused. */
  upgrade(): void {
    const refusal = this.#reply.upgrade?.(this.#withCommon<string>({})) ?? null;
    if (refusal !== null) {
      this.fail(refusal);
      return;
    }
    this.#status = SWITCHING_PROTOCOLS;
    this.#isWhole = true;
  }

  /** Notifies the observers that the request has ended. Call it once, with or without a response. */
  finish(): void {
    for (const observer of this.#options.observers) observer.ended(this);
  }

  #withCommon<Value extends string | string[]>(
    headers: Readonly<Record<string, Value>>,
  ): Record<string, Value | string> {
    const names = requestIdHeaders(this.#errors);
    const common: Record<string, Value | string> = {
      "access-control-allow-origin": "*",
      "access-control-expose-headers": [...names, UNKNOWN_FIELDS_HEADER].join(", "),
      ...headers,
    };
    if (this.unknownFields !== null) common[UNKNOWN_FIELDS_HEADER] = this.unknownFields;
    const { corsOrigins } = this.#options;
    if (corsOrigins !== null) this.#restrictOrigin(common, corsOrigins);
    if (!this.#options.disableRequestIdHeader) for (const name of names) common[name] = this.id;
    return common;
  }

  /** Adds the CORS header for listed origins only. `vary` keeps caches from reusing a response for another origin. */
  #restrictOrigin(headers: Record<string, string | string[]>, corsOrigins: readonly string[]): void {
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
