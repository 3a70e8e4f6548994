// Reply to one request on uWebSockets.js. The native response must not be used after it has ended or was aborted, so every
// method checks for this first.
import { STATUS_CODES } from "node:http";
import type { EdgeReply } from "../body-intake.ts";
import type { ListedHeaders, ReplyHeaders, StreamSink, Upgrade } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";
import type { NativeResponse } from "./native.ts";

// uWS closes a connection after 8 to 12 s of idle time. With this hint, clients stop reusing a connection earlier, so that they
// do not send a request on a connection that is about to close.
const KEEP_ALIVE_HINT = "timeout=5";

export class UwsReply implements EdgeReply, StreamSink {
  readonly #response: NativeResponse;
  readonly #isHead: boolean;
  readonly #inFlight: InFlight;
  closesConnection = false;
  upgrade?: Upgrade;
  #isDone = false;
  #isGone = false;
  #aborter: AbortController | null = null;
  #status = 0;
  #headers: ListedHeaders | null = null;
  #pending: string | Uint8Array = "";
  #isWritable = true;
  #wake: () => void = () => {};
  /** Called once, when the request has ended for any reason. */
  onDone: () => void = () => {};

  constructor(response: NativeResponse, isHead: boolean, inFlight: InFlight) {
    this.#response = response;
    this.#isHead = isHead;
    this.#inFlight = inFlight;
    inFlight.add(this);
    response.onAborted(() => this.#gone());
  }

  get isDone(): boolean {
    return this.#isDone;
  }

  /** Abort signal, created on first use because most small requests do not need it. */
  get signal(): AbortSignal {
    this.#aborter ??= new AbortController();
    if (this.#isGone) this.#aborter.abort();
    return this.#aborter.signal;
  }

  send(status: number, headers: ListedHeaders, body: string | Uint8Array): void {
    if (this.#isDone) return;
    this.#response.cork(() => {
      this.#writeHead(status, headers);
      // A response to HEAD has no content-length, because in older uWS releases endWithoutBody(length) leaves the response
      // unfinished.
      if (this.closesConnection && this.#isHead) this.#response.end("", true);
      else if (this.#isHead || status === 204) this.#response.endWithoutBody();
      else this.#response.end(body, this.closesConnection || this.#inFlight.isRetiring);
    });
    this.#finish();
  }

  stream(status: number, headers: ListedHeaders): StreamSink {
    if (this.#isDone) return this;
    this.#status = status;
    this.#headers = headers;
    this.#response.onWritable(() => {
      this.#isWritable = true;
      this.#wake();
      return true;
    });
    return this;
  }

  write(piece: string | Uint8Array): boolean {
    if (this.#isDone || piece.length === 0) return true;
    this.#pending = piece;
    this.#response.cork(this.#flush);
    return this.#isWritable;
  }

  // A corked write reports back pressure one write late, because uWS writes to the socket only when it uncorks. The buffer may
  // therefore hold up to two batches of a stream.
  readonly #flush = (): void => {
    this.#writeHeadOnce();
    if (!this.#isHead) this.#isWritable = this.#response.write(this.#pending);
    this.#pending = "";
  };

  /** Restarts uWS's idle timer by pausing and resuming reads. Writing to a full socket does not restart the timer. */
  keepOpen(): void {
    if (this.#isDone) return;
    this.#response.pause();
    this.#response.resume();
  }

  drained(): Promise<void> {
    if (this.#isDone || this.#isWritable) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  end(): void {
    if (this.#isDone) return;
    this.#response.cork(() => {
      this.#writeHeadOnce();
      // `end` must not also close the connection here: uWS would lose the last chunk, or write a header into the body.
      this.#response.end();
    });
    this.#finish();
  }

  abort(): void {
    if (!this.#isDone) this.#response.close();
  }

  /** Responds to a WebSocket handshake. `upgrade`: completes it. The native response must not be used afterwards. */
  switchProtocol(headers: ReplyHeaders, upgrade: () => void): void {
    if (this.#isDone) return;
    this.#response.cork(() => {
      this.#response.writeStatus("101 Switching Protocols");
      for (const name in headers) this.#response.writeHeader(name, headers[name] as string);
      upgrade();
    });
    this.#finish();
  }

  #writeHead(status: number, headers: ListedHeaders): void {
    this.#response.writeStatus(`${status} ${STATUS_CODES[status] ?? ""}`);
    // Only a streamed response needs `connection: close` here. For other responses, `end` of uWS adds it.
    if (this.#inFlight.isRetiring && this.#headers !== null) this.#response.writeHeader("connection", "close");
    else this.#response.writeHeader("keep-alive", KEEP_ALIVE_HINT);
    for (const name in headers) {
      const value = headers[name] ?? "";
      if (typeof value === "string") this.#response.writeHeader(name, value);
      else for (const one of value) this.#response.writeHeader(name, one);
    }
  }

  #writeHeadOnce(): void {
    if (this.#headers !== null) this.#writeHead(this.#status, this.#headers);
    this.#headers = null;
  }

  #gone(): void {
    this.#isGone = true;
    this.#finish();
    this.#aborter?.abort();
    this.#wake();
  }

  #finish(): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#inFlight.delete(this);
    this.onDone();
  }
}
