// Body intake of one server: collects request bodies within the limits on size and time. Passes a request to its handler when
// the body is complete or rejected. Both HTTP front ends feed it chunks.
import type { ServerError } from "../../runtime/errors.ts";
import { BodyBudget, BodyReader, bringsBody, refusedLength } from "./body.ts";
import { type ArrivingBody, BodyDeadlines } from "./body-deadlines.ts";
import { BodySpool, SpoolCount } from "./body-spool.ts";
import { clientOf } from "./client.ts";
import type { AdmitRequest, BodyLimits, EdgeHandler, HttpReply, HttpRequest, SpoolFolder } from "./edge.ts";

const DEFAULT_REQUEST_TIMEOUT_MS = 300_000;

const EMPTY = new Uint8Array(0);

/** Request of an HTTP front end. Its body arrives after the headers and may be released before the response ends. */
export abstract class EdgeRequest implements HttpRequest {
  abstract readonly method: string;
  abstract readonly path: string;
  abstract readonly query: string;
  abstract readonly address: string;
  abstract readonly signal: AbortSignal;
  readonly headers = new Map<string, string>();
  bodyFile?: string;
  #body: Uint8Array = EMPTY;
  #reader: BodyReader | null = null;
  #spooledBytes = 0;
  #holds = 0;
  #onLetGo: () => void = () => {};

  /** Adds a header line. Values of a repeated header are joined. */
  protected addHeader(name: string, value: string): void {
    const earlier = this.headers.get(name);
    this.headers.set(name, earlier === undefined ? value : `${earlier}, ${value}`);
  }

  get body(): Uint8Array {
    return this.#body;
  }

  get bodyBytes(): number {
    return this.#reader?.sizeBytes ?? this.#spooledBytes;
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

  /** Runs the action when all callers of `holdBody` have released the body. */
  whenLetGo(action: () => void): void {
    if (this.#holds === 0) action();
    else this.#onLetGo = action;
  }

  /** Sets the complete body. */
  hasBody(body: BodyReader | BodySpool): void {
    if (body instanceof BodySpool) {
      this.bodyFile = body.path;
      this.#spooledBytes = body.sizeBytes;
    } else {
      this.#reader = body;
      this.#body = body.take();
    }
  }
}

/** Reply of an HTTP front end, which can close the connection after the response. */
export interface EdgeReply extends HttpReply {
  /** Whether to close the connection after the response. If true, no further requests are read from the connection. */
  closesConnection: boolean;
  /** Called once, when the request has ended for any reason. */
  onDone: () => void;
}

export class BodyIntake {
  readonly #handler: EdgeHandler;
  readonly #admit: AdmitRequest;
  readonly #budget: BodyBudget;
  readonly #deadlines: BodyDeadlines;
  readonly #spoolFolder: SpoolFolder;
  readonly #spools = new SpoolCount();

  constructor(handler: EdgeHandler, { maxBodyBytesInFlight, requestTimeoutMs, admit, spoolFolder }: BodyLimits) {
    this.#handler = handler;
    this.#admit = admit ?? (() => null);
    this.#spoolFolder = spoolFolder ?? (() => null);
    this.#budget = new BodyBudget(maxBodyBytesInFlight);
    this.#deadlines = new BodyDeadlines(requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS);
  }

  /**
   * Begins a request whose headers have arrived. Returns the Reception of its body; null if no body is read, because the
   * handler has already been called.
   */
  begin(request: EdgeRequest, reply: EdgeReply): Reception | null {
    if (!bringsBody(request.headers)) {
      this.#handler(request, reply, null);
      return null;
    }
    const client = clientOf(request);
    const refusal = this.#admit(request) ?? refusedLength(request.headers.get("content-length"));
    const folder = refusal === null ? this.#spoolFolder(request) : null;
    const full = refusal ?? (folder === null ? null : this.#spools.enter(client));
    if (full !== null) {
      this.#handler(request, reply, full);
      return null;
    }
    const body = folder === null ? new BodyReader(this.#budget, client) : new BodySpool(folder, client, this.#spools);
    return new Reception(request, reply, body, this.#deadlines, this.#handler);
  }

  /** Calls the handler with a request whose body arrived as one WebSocket message. Takes ownership of the body's bytes. */
  receive(request: EdgeRequest, reply: EdgeReply, body: Uint8Array): void {
    const reader = new BodyReader(this.#budget, clientOf(request));
    reply.onDone = () => request.whenLetGo(() => reader.release());
    const refusal = reader.add(body);
    if (refusal === null) request.hasBody(reader);
    this.#handler(request, reply, refusal);
  }

  /** Passes a rejected request to its handler without the body. The connection closes after the response. */
  refuse(request: EdgeRequest, reply: EdgeReply, refusal: ServerError): void {
    reply.closesConnection = true;
    this.#handler(request, reply, refusal);
  }

  stop(): void {
    this.#deadlines.stop();
  }
}

/** Reception: receives the body of one request, chunk by chunk. */
export class Reception {
  readonly #request: EdgeRequest;
  readonly #reply: EdgeReply;
  readonly #body: BodyReader | BodySpool;
  readonly #deadlines: BodyDeadlines;
  readonly #handler: EdgeHandler;
  readonly #arriving: ArrivingBody;
  /** Whether the body is complete or rejected. */
  #isOver = false;
  /** Whether the request has ended. */
  #isDone = false;

  constructor(
    request: EdgeRequest,
    reply: EdgeReply,
    body: BodyReader | BodySpool,
    deadlines: BodyDeadlines,
    handler: EdgeHandler,
  ) {
    this.#request = request;
    this.#reply = reply;
    this.#body = body;
    this.#deadlines = deadlines;
    this.#handler = handler;
    this.#arriving = deadlines.add((refusal) => {
      reply.closesConnection = true;
      this.#refuse(refusal);
    });
  }

  /**
   * Adds a chunk and takes ownership of its bytes. Chunks after a rejection are discarded. If reading must pause, returns a
   * promise that resolves when reading may continue; otherwise null. The promise never rejects.
   */
  add(chunk: Uint8Array): Promise<void> | null {
    if (this.#isOver) return null;
    this.#arriving.onBytes(chunk.length);
    const refusal = this.#body.add(chunk);
    if (refusal !== null) this.#refuse(refusal);
    return refusal === null && this.#body instanceof BodySpool ? this.#body.drained() : null;
  }

  /** Completes the body. Call it after the last chunk. */
  end(): void {
    if (this.#isOver) return;
    this.#close();
    if (this.#body instanceof BodySpool) void this.#endSpool(this.#body);
    else this.#handled(null);
  }

  /** Passes the request to its handler when the complete body is in the file. Does nothing if the client has disconnected. */
  async #endSpool(spool: BodySpool): Promise<void> {
    const error = await spool.end();
    if (this.#isDone) return;
    this.#handled(error);
  }

  #handled(refusal: ServerError | null): void {
    if (refusal === null) this.#request.hasBody(this.#body);
    this.#handler(this.#request, this.#reply, refusal);
  }

  /** Ends the reception. Called when the request has ended, with or without a response. */
  done(): void {
    this.#isDone = true;
    this.#close();
    this.#request.whenLetGo(() => this.#body.release());
  }

  #refuse(refusal: ServerError): void {
    this.#close();
    this.#body.release();
    this.#handler(this.#request, this.#reply, refusal);
  }

  #close(): void {
    this.#isOver = true;
    this.#deadlines.delete(this.#arriving);
  }
}
