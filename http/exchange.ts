// Owns one request and its one answer: adds the headers every answer has, turns errors into the envelope, and writes the
// access-log line. Made by the app for each request; protocol routes see HTTP only through it.
import { type ErrorRecord, ServerError, toErrorRecord } from "../runtime/errors.ts";
import type { HttpReply, HttpRequest, ReplyHeaders, StreamSink } from "./edge.ts";
import { errorBody, errorHeaders, statusOf } from "./errors.ts";
import type { Log } from "./log.ts";
import { requestId } from "./request-id.ts";

export interface ExchangeOptions {
  readonly log: Log;
  readonly accessLog: boolean;
  readonly disableRequestIdHeader: boolean;
}

/** What the access log says of a request whose client went away before it was answered. */
const CLIENT_GONE = 499;

export class Exchange {
  readonly request: HttpRequest;
  readonly id: string;
  /** Model id for the access log, once known. */
  model = "";
  readonly #reply: HttpReply;
  readonly #options: ExchangeOptions;
  readonly #startedAt = performance.now();
  #status = CLIENT_GONE;
  #sentBytes = 0;

  constructor(request: HttpRequest, reply: HttpReply, options: ExchangeOptions) {
    this.request = request;
    this.#reply = reply;
    this.#options = options;
    this.id = requestId(request.headers.get("x-request-id"));
  }

  json(status: number, value: unknown): void {
    this.send(status, { "content-type": "application/json" }, JSON.stringify(value));
  }

  text(status: number, text: string): void {
    this.send(status, { "content-type": "text/plain; charset=utf-8" }, text);
  }

  send(status: number, headers: ReplyHeaders, body: string): void {
    this.#status = status;
    if (this.#options.accessLog) this.#sentBytes += Buffer.byteLength(body);
    this.#reply.send(status, this.#withCommon(headers), body);
  }

  /** Answers with the error's status and envelope. What is not a ServerError is our own fault: logged, not shown. */
  fail(thrown: unknown, headers: ReplyHeaders = {}): void {
    // With the client gone there is nobody to tell, and what was thrown is most likely only that.
    if (this.request.signal.aborted) return;
    const error = thrown instanceof ServerError ? toErrorRecord(thrown) : this.unexpected(thrown);
    const head = { "content-type": "application/json", ...errorHeaders(error), ...headers };
    this.send(statusOf(error.code), head, errorBody(error));
  }

  /** Logs a thrown value that is no ServerError and gives the error to show instead. */
  unexpected(thrown: unknown): ErrorRecord {
    this.#options.log.error({ requestId: this.id, err: thrown }, "a request failed unexpectedly");
    return { code: "internal", message: `internal error; the server's log has it under request id ${this.id}` };
  }

  /** Begins a stream of server-sent events. */
  openEventStream(): StreamSink {
    this.#status = 200;
    const sink = this.#reply.stream(
      200,
      this.#withCommon({ "content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no" }),
    );
    return this.#options.accessLog ? this.#counted(sink) : sink;
  }

  /** Writes the access-log line: the request has ended, answered or not. */
  finish(): void {
    if (!this.#options.accessLog) return;
    const { method, path } = this.request;
    const fields = {
      method,
      path,
      status: this.#status,
      durationMs: Math.round((performance.now() - this.#startedAt) * 1000) / 1000,
      bytes: this.#sentBytes,
      requestId: this.id,
      ...(this.model === "" ? {} : { model: this.model }),
    };
    this.#options.log.info(fields, "request");
  }

  #withCommon(headers: ReplyHeaders): ReplyHeaders {
    const common = { ...headers, "access-control-allow-origin": "*", "access-control-expose-headers": "x-request-id" };
    return this.#options.disableRequestIdHeader ? common : { ...common, "x-request-id": this.id };
  }

  #counted(sink: StreamSink): StreamSink {
    return {
      write: (text) => {
        this.#sentBytes += Buffer.byteLength(text);
        return sink.write(text);
      },
      keepOpen: () => sink.keepOpen(),
      drained: () => sink.drained(),
      end: () => sink.end(),
      abort: () => sink.abort(),
    };
  }
}
