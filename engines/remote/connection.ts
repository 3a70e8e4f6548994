// Upstream connection: sends requests to one upstream, and receives JSON or a stream of events. Connections are kept open between requests.
// The upstream's address may be private: it comes from the operator, so the checks for addresses from clients do not apply.
import { type Dispatcher, Pool } from "../../runtime/web/undici.ts";
import { EventLines } from "./event-lines.ts";
import { errorText } from "./json-shape.ts";
import { type FailureKind, UpstreamFailure } from "./upstream.ts";

/** Maximum length in bytes of a JSON response (not a stream). */
const maxBodyBytes = 64 * 2 ** 20;
/** Length of an error response, in UTF-16 code units, after which further chunks are discarded. */
const maxErrorBytes = 64 * 1024;

export interface ConnectionOptions {
  /** Base address, without "/" at the end. */
  readonly url: string;
  readonly apiKey: string | null;
  readonly connectTimeoutMs: number;
}

/** Receiver of a stream of events. Exactly one of onEnd and onFailure is called, as the last call. */
export interface StreamSink {
  /** Receives the data of an event. If it throws an UpstreamFailure, the stream ends with this failure. */
  onEvent(data: string): void;
  /** Called when the upstream has ended the stream without an error. */
  onEnd(): void;
  onFailure(failure: UpstreamFailure): void;
}

/** A request whose response is a stream. */
export interface UpstreamStream {
  /** Stops or resumes reading from the connection. */
  setPaused(paused: boolean): void;
  /** Closes the connection, which cancels the request. The sink gets no further calls. */
  close(): void;
}

export class UpstreamConnection {
  readonly #pool: Pool;
  readonly #prefix: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor({ url, apiKey, connectTimeoutMs }: ConnectionOptions) {
    const { origin, pathname } = new URL(url);
    this.#prefix = pathname === "/" ? "" : pathname;
    this.#pool = new Pool(origin, { connect: { timeout: connectTimeoutMs }, headersTimeout: 0, bodyTimeout: 0 });
    this.#headers = {
      "content-type": "application/json",
      ...(apiKey !== null && { authorization: `Bearer ${apiKey}` }),
    };
  }

  stream(path: string, body: string, sink: StreamSink): UpstreamStream {
    const response = new StreamedResponse(sink);
    this.#pool.dispatch({ path: this.#prefix + path, method: "POST", headers: this.#headers, body }, response);
    return response;
  }

  /**
   * Sends a request and returns the JSON of the response. Rejects with UpstreamFailure. `timeoutMs` limits the whole request. Aborting
   * `stop` closes the connection.
   */
  async json(
    method: "GET" | "POST",
    path: string,
    body: string | null,
    timeoutMs: number,
    stop?: AbortSignal,
  ): Promise<unknown> {
    const limit = AbortSignal.timeout(timeoutMs);
    const signal = stop === undefined ? limit : AbortSignal.any([limit, stop]);
    try {
      const options = { path: this.#prefix + path, method, headers: this.#headers, body, signal };
      const { statusCode, headers, body: sent } = await this.#pool.request(options);
      const bytes: Buffer[] = [];
      let length = 0;
      for await (const chunk of sent) {
        length += chunk.length;
        if (length > maxBodyBytes)
          throw new UpstreamFailure("garbage", `expected at most ${maxBodyBytes} bytes; got more`);
        bytes.push(chunk);
      }
      const text = Buffer.concat(bytes).toString("utf8");
      if (statusCode !== 200) throw statusFailure(statusCode, text, headers["retry-after"]);
      return parsed(text);
    } catch (error) {
      if (error instanceof UpstreamFailure) throw error;
      if (limit.aborted) throw new UpstreamFailure("timeout", `no answer to ${method} ${path} within ${timeoutMs} ms`);
      throw connectionFailure(error);
    }
  }

  close(): void {
    this.#pool.destroy().catch(() => undefined);
  }
}

class StreamedResponse implements Dispatcher.DispatchHandlers, UpstreamStream {
  readonly #sink: StreamSink;
  readonly #lines = new EventLines();
  #status = 0;
  #retryAfter: string | undefined;
  #refusal = "";
  #isPaused = false;
  #isOver = false;
  #abort: (error?: Error) => void = () => {};
  #resume: () => void = () => {};

  constructor(sink: StreamSink) {
    this.#sink = sink;
  }

  setPaused(paused: boolean): void {
    if (this.#isPaused === paused) return;
    this.#isPaused = paused;
    if (!paused) this.#resume();
  }

  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#abort();
  }

  onConnect(abort: (error?: Error) => void): void {
    this.#abort = abort;
    if (this.#isOver) abort();
  }

  onHeaders(status: number, headers: Buffer[], resume: () => void): boolean {
    this.#resume = resume;
    this.#status = status;
    if (status !== 200) this.#retryAfter = headerOf(headers, "retry-after");
    return true;
  }

  /** Returns false to pause reading until #resume() is called. */
  onData(chunk: Buffer): boolean {
    if (this.#isOver) return true;
    if (this.#status !== 200) {
      if (this.#refusal.length < maxErrorBytes) this.#refusal += chunk.toString("utf8");
      return true;
    }
    try {
      for (const data of this.#lines.push(chunk)) {
        this.#sink.onEvent(data);
        if (this.#isOver) return true;
      }
    } catch (error) {
      this.#fail(error);
      this.#abort();
    }
    return !this.#isPaused;
  }

  onComplete(): void {
    if (this.#isOver) return;
    if (this.#status !== 200) {
      this.#fail(statusFailure(this.#status, this.#refusal, this.#retryAfter));
      return;
    }
    this.#isOver = true;
    this.#sink.onEnd();
  }

  onError(error: Error): void {
    this.#fail(connectionFailure(error));
  }

  #fail(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#sink.onFailure(error instanceof UpstreamFailure ? error : connectionFailure(error));
  }
}

function headerOf(headers: readonly Buffer[], name: string): string | undefined {
  for (let i = 0; i + 1 < headers.length; i += 2) {
    if (headers[i]?.toString("latin1").toLowerCase() === name) return headers[i + 1]?.toString("latin1");
  }
  return undefined;
}

/** Parses JSON that an upstream has sent. Throws UpstreamFailure. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UpstreamFailure("garbage", `expected JSON; got ${JSON.stringify(text.slice(0, 120))}`);
  }
}

function statusFailure(status: number, text: string, retryAfter: string | string[] | undefined): UpstreamFailure {
  const message = `status ${status}: ${errorText(jsonOrText(text))}`;
  const seconds = Number(retryAfter ?? Number.NaN);
  return new UpstreamFailure(kindOf(status), message, Number.isFinite(seconds) ? seconds * 1000 : null);
}

function kindOf(status: number): FailureKind {
  if (status === 401 || status === 403) return "key";
  if (status === 429) return "busy";
  if (status === 408 || status === 425 || status >= 500) return "failed";
  // A redirect or a missing path means that the upstream's address is wrong, not the request.
  return status === 400 || status === 413 || status === 422 ? "refused" : "failed";
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function connectionFailure(error: unknown): UpstreamFailure {
  const { message, code } = error as Error & { readonly code?: string };
  return new UpstreamFailure(
    code === "UND_ERR_CONNECT_TIMEOUT" ? "timeout" : "connection",
    code ?? message ?? "unknown",
  );
}
