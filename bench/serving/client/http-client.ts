// Keep-alive connection of the load generator: writes prepared requests to the socket and reads responses directly from it.
// Node's HTTP client needs several times as much CPU per chunk, on the cores that the measured server uses too.
import { once } from "node:events";
import { connect as connectPlain, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { connect as connectTls } from "node:tls";
import { BodyReader } from "./http-body.ts";

/** Time after which a server that sends nothing counts as failed. */
const silenceLimitMs = 300_000;
const connectLimitMs = 10_000;
const headEnd = "\r\n\r\n";

/** Receiver of a response as it arrives. */
export interface AnswerSink {
  head(status: number, isEventStream: boolean): void;
  /** Receives `data[from, to)`, which is valid only during this call. */
  body(data: Buffer, from: number, to: number, nowMs: number): void;
}

/** Response that is being read. */
interface Pending {
  readonly sink: AnswerSink;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  head: string;
  body: BodyReader | null;
}

export class HttpClient {
  readonly #url: URL;
  #socket: Socket | null = null;
  #pending: Pending | null = null;
  #mayReuse = true;
  #hasAnswerBegun = false;

  constructor(url: URL) {
    this.#url = url;
  }

  /**
   * Sends one whole request and settles when its response is complete. Only one request may run at a time. Some servers close a
   * connection after a stream without announcing it. In that case the request is sent once more on a new connection, and the
   * measured time includes both attempts.
   */
  async exchange(request: Buffer, sink: AnswerSink): Promise<void> {
    const isReused = this.#socket !== null;
    try {
      await this.#attempt(request, sink);
    } catch (error) {
      if (!isReused || this.#hasAnswerBegun) throw error;
      this.close();
      await this.#attempt(request, sink);
    }
    if (!this.#mayReuse) this.close();
  }

  async #attempt(request: Buffer, sink: AnswerSink): Promise<void> {
    const socket = await this.connect();
    this.#hasAnswerBegun = false;
    await new Promise<void>((resolve, reject) => {
      this.#pending = { sink, resolve, reject, head: "", body: null };
      socket.write(request);
    });
  }

  /** Connects if there is no connection. */
  async connect(): Promise<Socket> {
    if (this.#socket) return this.#socket;
    const { hostname, port, protocol } = this.#url;
    const host = hostname.replace(/^\[|\]$/g, "");
    const isTls = protocol === "https:";
    const options = { host, port: Number(port) || (isTls ? 443 : 80), noDelay: true };
    const socket = isTls ? connectTls({ ...options, servername: host }) : connectPlain(options);
    socket.on("error", (error) => this.#lost(socket, error));
    try {
      await once(socket, isTls ? "secureConnect" : "connect", { signal: AbortSignal.timeout(connectLimitMs) });
    } catch (error) {
      socket.destroy();
      throw error;
    }
    socket.setTimeout(silenceLimitMs, () => socket.destroy(new Error("ETIMEDOUT: no byte for too long")));
    socket.on("data", (data) => this.#read(data));
    socket.on("end", () => this.#lost(socket, null));
    socket.on("close", () => this.#lost(socket, null));
    this.#mayReuse = true;
    this.#socket = socket;
    return socket;
  }

  close(): void {
    const socket = this.#socket;
    this.#socket = null;
    socket?.destroy();
  }

  #read(data: Buffer): void {
    const pending = this.#pending;
    if (pending === null) return;
    this.#hasAnswerBegun = true;
    const nowMs = performance.now();
    let from = 0;
    if (pending.body === null) {
      from = this.#readHead(pending, data);
      if (from === -1) return;
    }
    if (pending.body?.read(data, from, nowMs)) this.#complete();
  }

  /** Returns the offset of the body in `data`, or -1 while the head (status line and headers) is incomplete. */
  #readHead(pending: Pending, data: Buffer): number {
    const before = pending.head.length;
    pending.head += data.toString("latin1");
    const end = pending.head.indexOf(headEnd);
    if (end === -1) return -1;
    const head = pending.head.slice(0, end).toLowerCase();
    const length = /\r\ncontent-length: *(\d+)/.exec(head)?.[1];
    const isChunked = /\r\ntransfer-encoding: *chunked/.test(head);
    const framing = isChunked ? "chunked" : length === undefined ? "until close" : Number(length);
    if (/\r\nconnection: *close/.test(head) || framing === "until close") this.#mayReuse = false;
    const isEventStream = /\r\ncontent-type: *text\/event-stream/.test(head);
    pending.sink.head(Number(/^http\/1\.[01] (\d{3})/.exec(head)?.[1]), isEventStream);
    pending.body = new BodyReader(framing, pending.sink);
    return end + headEnd.length - before;
  }

  #complete(): void {
    const pending = this.#pending;
    this.#pending = null;
    pending?.resolve();
  }

  #lost(socket: Socket, error: Error | null): void {
    if (this.#socket === socket) this.#socket = null;
    const pending = this.#pending;
    if (pending === null) return;
    this.#pending = null;
    if (error === null && pending.body?.endsWithConnection) pending.resolve();
    else pending.reject(error ?? new Error("ECONNRESET: the connection was closed before the answer's end"));
  }
}
