// Body intake of one server: collects the bodies of requests within the limits on size and time, and hands a request over when
// its body is whole or refused. Both edges feed it the chunks that they receive.
import type { ServerError } from "../../runtime/errors.ts";
import { BodyBudget, BodyReader, bringsBody } from "./body.ts";
import { type ArrivingBody, BodyDeadlines } from "./body-deadlines.ts";
import { clientOf } from "./client.ts";
import type { EdgeHandler, EdgeOptions, HttpReply, HttpRequest } from "./edge.ts";

const DEFAULT_REQUEST_TIMEOUT_MS = 300_000;

const EMPTY = new Uint8Array(0);

/** A request of an edge: its body comes after its head, and may be released before the request is answered. */
export abstract class EdgeRequest implements HttpRequest {
  abstract readonly method: string;
  abstract readonly path: string;
  abstract readonly query: string;
  abstract readonly headers: ReadonlyMap<string, string>;
  abstract readonly address: string;
  abstract readonly signal: AbortSignal;
  #body: Uint8Array = EMPTY;
  #reader: BodyReader | null = null;
  #holds = 0;
  #onLetGo: () => void = () => {};

  get body(): Uint8Array {
    return this.#body;
  }

  get bodyBytes(): number {
    return this.#reader?.sizeBytes ?? 0;
  }

  releaseBody(keptBytes = 0): void {
    this.#body = EMPTY;
    this.#reader?.release(keptBytes);
  }

  holdBody(): () => void {
    this.#holds++;
    return () => {
      this.#holds--;
      if (this.#holds === 0) this.#onLetGo();
    };
  }

  /** Does so when nothing holds the body any more. */
  whenLetGo(action: () => void): void {
    if (this.#holds === 0) action();
    else this.#onLetGo = action;
  }

  /** All of its body has come. */
  hasBody(reader: BodyReader): void {
    this.#reader = reader;
    this.#body = reader.take();
  }
}

/** The reply of an edge, which can end the connection with its answer. */
export interface EdgeReply extends HttpReply {
  /** The connection is closed once the answer has left: nothing that follows on it is read. */
  closesConnection: boolean;
}

export class BodyIntake {
  readonly #handler: EdgeHandler;
  readonly #budget: BodyBudget;
  readonly #deadlines: BodyDeadlines;

  constructor(handler: EdgeHandler, { maxBodyBytesInFlight, requestTimeoutMs }: EdgeOptions) {
    this.#handler = handler;
    this.#budget = new BodyBudget(maxBodyBytesInFlight);
    this.#deadlines = new BodyDeadlines(requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS);
  }

  /**
   * Takes a request whose head has come. Returns the Reception that takes its body; null where no body is to be read, and then
   * the request has been handed over.
   */
  begin(request: EdgeRequest, reply: EdgeReply): Reception | null {
    if (!bringsBody(request.headers)) {
      this.#handler(request, reply, null);
      return null;
    }
    const reader = new BodyReader(this.#budget, clientOf(request));
    const refusal = reader.refuseLength(request.headers.get("content-length"));
    if (refusal === null) return new Reception(request, reply, reader, this.#deadlines, this.#handler);
    this.#handler(request, reply, refusal);
    return null;
  }

  /** Hands over a request that is not to be read; its connection ends with the answer. */
  refuse(request: EdgeRequest, reply: EdgeReply, refusal: ServerError): void {
    reply.closesConnection = true;
    this.#handler(request, reply, refusal);
  }

  stop(): void {
    this.#deadlines.stop();
  }
}

/** The body of one request while it arrives. */
export class Reception {
  readonly #request: EdgeRequest;
  readonly #reply: EdgeReply;
  readonly #reader: BodyReader;
  readonly #deadlines: BodyDeadlines;
  readonly #handler: EdgeHandler;
  readonly #arriving: ArrivingBody;
  #isOver = false;

  constructor(
    request: EdgeRequest,
    reply: EdgeReply,
    reader: BodyReader,
    deadlines: BodyDeadlines,
    handler: EdgeHandler,
  ) {
    this.#request = request;
    this.#reply = reply;
    this.#reader = reader;
    this.#deadlines = deadlines;
    this.#handler = handler;
    this.#arriving = deadlines.add((refusal) => {
      reply.closesConnection = true;
      this.#refuse(refusal);
    });
  }

  /** Takes a chunk, which it keeps. What follows a refused body is thrown away. */
  add(chunk: Uint8Array): void {
    if (this.#isOver) return;
    this.#arriving.onBytes(chunk.length);
    const refusal = this.#reader.add(chunk);
    if (refusal !== null) this.#refuse(refusal);
  }

  /** The last chunk has come. */
  end(): void {
    if (this.#isOver) return;
    this.#close();
    this.#request.hasBody(this.#reader);
    this.#handler(this.#request, this.#reply, null);
  }

  /** The request has ended, answered or not. */
  done(): void {
    this.#close();
    this.#request.whenLetGo(() => this.#reader.release());
  }

  #refuse(refusal: ServerError): void {
    this.#close();
    this.#reader.release();
    this.#handler(this.#request, this.#reply, refusal);
  }

  #close(): void {
    this.#isOver = true;
    this.#deadlines.delete(this.#arriving);
  }
}
