// Reply to one request on node:http.
import type { ServerResponse } from "node:http";
import type { EdgeReply } from "../body-intake.ts";
import type { ListedHeaders, StreamSink, Upgrade } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";

export class NodeReply implements EdgeReply, StreamSink {
  readonly #response: ServerResponse;
  readonly #inFlight: InFlight;
  readonly #ofConnection: Set<NodeReply>;
  readonly #aborter = new AbortController();
  closesConnection = false;
  upgrade?: Upgrade;
  #isWritable = true;
  #isDone = false;
  #wake: () => void = () => {};

  /** Called once, when the request has ended for any reason. */
  onDone: () => void = () => {};

  /** `ofConnection`: the replies in progress on the same connection. */
  constructor(response: ServerResponse, inFlight: InFlight, ofConnection: Set<NodeReply>) {
    this.#response = response;
    this.#inFlight = inFlight;
    this.#ofConnection = ofConnection;
    ofConnection.add(this);
    inFlight.add(this);
    response.on("close", () => this.connectionClosed());
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  /** Whether the response is complete. Its last bytes may not have been sent. */
  get isEnded(): boolean {
    return this.#response.writableEnded;
  }

  send(status: number, headers: ListedHeaders, body: string | Uint8Array): void {
    if (this.#isAnswered) return;
    if (status !== 204) this.#response.setHeader("content-length", Buffer.byteLength(body));
    this.#writeHead(status, headers);
    this.#response.end(body);
  }

  stream(status: number, headers: ListedHeaders): StreamSink {
    if (this.#isAnswered) return this;
    this.#writeHead(status, headers);
    this.#response.on("drain", () => {
      this.#isWritable = true;
      this.#wake();
    });
    return this;
  }

  write(piece: string | Uint8Array): boolean {
    if (this.#isAnswered || piece.length === 0) return true;
    this.#isWritable = this.#response.write(piece);
    return this.#isWritable;
  }

  /** Does nothing, because node, unlike uWebSockets.js, has no idle timeout while a response is incomplete. */
  keepOpen(): void {}

  drained(): Promise<void> {
    if (this.#isAnswered || this.#isWritable) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  end(): void {
    if (!this.#isAnswered) this.#response.end();
  }

  abort(): void {
    this.#response.destroy();
  }

  /** Called when the connection has closed. Needed because node notifies only one of several pipelined responses. */
  connectionClosed(): void {
    if (this.#isDone) return;
    if (!this.#response.writableFinished) this.#aborter.abort();
    this.#wake();
    this.protocolSwitched();
  }

  /** Called when the connection becomes a WebSocket: the request has ended without an HTTP response. */
  protocolSwitched(): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#ofConnection.delete(this);
    this.#inFlight.delete(this);
    this.onDone();
  }

  get #isAnswered(): boolean {
    return this.#isDone || this.#response.writableEnded || this.#response.destroyed;
  }

  #writeHead(status: number, headers: ListedHeaders): void {
    if (this.closesConnection || this.#inFlight.isRetiring) this.#response.setHeader("connection", "close");
    this.#response.writeHead(status, headers);
  }
}
