// Owns the answer to one request on node:http.
import type { ServerResponse } from "node:http";
import type { HttpReply, ReplyHeaders, StreamSink } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";

export class NodeReply implements HttpReply, StreamSink {
  readonly #response: ServerResponse;
  readonly #inFlight: InFlight;
  readonly #aborter = new AbortController();
  #isWritable = true;
  #wake: () => void = () => {};

  constructor(response: ServerResponse, inFlight: InFlight, onDone: () => void) {
    this.#response = response;
    this.#inFlight = inFlight;
    inFlight.add(this);
    response.on("close", () => {
      if (!response.writableFinished) this.#aborter.abort();
      this.#wake();
      inFlight.delete(this);
      onDone();
    });
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  send(status: number, headers: ReplyHeaders, body: string | Uint8Array): void {
    if (this.#isDone) return;
    if (status !== 204) this.#response.setHeader("content-length", Buffer.byteLength(body));
    this.#writeHead(status, headers);
    this.#response.end(body);
  }

  stream(status: number, headers: ReplyHeaders): StreamSink {
    if (this.#isDone) return this;
    this.#writeHead(status, headers);
    this.#response.on("drain", () => {
      this.#isWritable = true;
      this.#wake();
    });
    return this;
  }

  write(piece: string | Uint8Array): boolean {
    if (this.#isDone || piece.length === 0) return true;
    this.#isWritable = this.#response.write(piece);
    return this.#isWritable;
  }

  /** Node leaves it open by itself. */
  keepOpen(): void {}

  drained(): Promise<void> {
    if (this.#isDone || this.#isWritable) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  end(): void {
    if (!this.#isDone) this.#response.end();
  }

  abort(): void {
    this.#response.destroy();
  }

  get #isDone(): boolean {
    return this.#response.writableEnded || this.#response.destroyed;
  }

  #writeHead(status: number, headers: ReplyHeaders): void {
    if (this.#inFlight.isClosing) this.#response.setHeader("connection", "close");
    this.#response.writeHead(status, headers);
  }
}
