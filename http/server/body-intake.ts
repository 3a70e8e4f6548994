// Body intake of one server: collects request bodies within the limits on size and time, and passes a request to its handler when
// its body is complete or refused. Both edges feed it chunks.
import type { ServerError } from "../../runtime/errors.ts";
import { BodyBudget, BodyReader, bringsBody } from "./body.ts";
import { type ArrivingBody, BodyDeadlines } from "./body-deadlines.ts";
import { clientOf } from "./client.ts";
import type { EdgeHandler, EdgeOptions, HttpReply, HttpRequest } from "./edge.ts";

const DEFAULT_REQUEST_TIMEOUT_MS = 300_000;

const EMPTY = new Uint8Array(0);

/** A request of an edge: the body arrives after the head, and may be released before the response. */
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

  /** Runs the action when nothing holds the body. */
  whenLetGo(action: () => void): void {
    if (this.#holds === 0) action();
    else this.#onLetGo = action;
  }

  /** The body is complete. */
  hasBody(reader: BodyReader): void {
    this.#reader = reader;
    this.#body = reader.take();
  }
}

/** The reply of an edge, which can close the connection after its response. */
export interface EdgeReply extends HttpReply {
  /** Close the connection after the response; nothing more is read from it. */
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
   * Starts a request whose head has arrived. Returns the Reception of its body; null: no body is read, and the handler has been
   * called.
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

  /** Passes on a refused request without its body; the connection closes after the response. */
  refuse(request: EdgeRequest, reply: EdgeReply, refusal: ServerError): void {
    reply.closesConnection = true;
    this.#handler(request, reply, refusal);
  }

  stop(): void {
    this.#deadlines.stop();
  }
}

/** The body of a request in arrival. */
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

  /** Takes ownership of a chunk. Chunks after a refusal are discarded. */
  add(chunk: Uint8Array): void {
    if (this.#isOver) return;
    this.#arriving.onBytes(chunk.length);
    const refusal = this.#reader.add(chunk);
    if (refusal !== null) this.#refuse(refusal);
  }

  /** The last chunk has arrived. */
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
