// WebSocket connection on node:http, implemented with the package ws.
import { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { MAX_BODY_BYTES } from "../body.ts";
import type { ReplyHeaders } from "../edge.ts";
import type { Frame, SocketConnection, SocketListener } from "../socket/connection.ts";
import { isHandshake } from "../socket/sessions.ts";

const server = new WebSocketServer({ noServer: true, maxPayload: MAX_BODY_BYTES, clientTracking: false });

const upgrading = new WeakSet<IncomingMessage>();

/**
 * Request of node's HTTP server that counts as an upgrade only if it is a WebSocket handshake. Otherwise, node would stop
 * handling HTTP on every connection that requests any upgrade. Some clients request an upgrade to HTTP/2 (`h2c`) with each
 * request.
 */
export class Incoming extends IncomingMessage {
  /**
   * Set by node's parser. The value is kept in a WeakSet, because node sets it before the fields of this class are initialised.
   */
  set upgrade(isAsked: boolean) {
    if (isAsked) upgrading.add(this);
    else upgrading.delete(this);
  }

  get upgrade(): boolean {
    return upgrading.has(this) && this.method === "GET" && isHandshake(headersOf(this));
  }
}

function headersOf({ headers }: IncomingMessage): ReadonlyMap<string, string> {
  return new Map(Object.entries(headers).map(([name, value]) => [name, `${value}`]));
}

/** WebSocket handshake, as node passes it to listeners of `upgrade`. */
export interface NodeHandshake {
  readonly incoming: IncomingMessage;
  readonly raw: Duplex;
  /** First bytes received after the handshake. */
  readonly head: Buffer;
}

/** Completes a handshake. `headers` are added to its response. `listen`: returns the listener for the connection's messages. */
export function acceptSocket(
  { incoming, raw, head }: NodeHandshake,
  headers: ReplyHeaders,
  listen: (connection: SocketConnection) => SocketListener,
): void {
  const addHeaders = (lines: string[]): void => {
    for (const name in headers) lines.push(`${name}: ${headers[name]}`);
  };
  // handleUpgrade completes or rejects the handshake synchronously, so this event belongs to this handshake.
  server.on("headers", addHeaders);
  server.handleUpgrade(incoming, raw, head, (socket) => {
    const listener = listen(new NodeSocket(socket, raw));
    socket.on("message", (data) => listener.message(data as Buffer));
    socket.on("close", () => listener.closed());
    // After an error, the `close` event follows. Without a listener, an error would end the process.
    socket.on("error", () => {});
  });
  server.off("headers", addHeaders);
}

class NodeSocket implements SocketConnection {
  readonly #socket: WebSocket;
  readonly #raw: Duplex;

  constructor(socket: WebSocket, raw: Duplex) {
    this.#socket = socket;
    this.#raw = raw;
  }

  send(frames: readonly Frame[]): boolean {
    if (!this.#isOpen) return true;
    this.#raw.cork();
    for (const { text, part } of frames) {
      this.#socket.send(text, { binary: false, fin: part === "whole" || part === "last" });
    }
    this.#raw.uncork();
    return !this.#raw.writableNeedDrain;
  }

  drained(): Promise<void> {
    if (!this.#isOpen || !this.#raw.writableNeedDrain) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#raw.off("drain", done);
        this.#socket.off("close", done);
        resolve();
      };
      this.#raw.on("drain", done);
      this.#socket.on("close", done);
    });
  }

  ping(): void {
    if (this.#isOpen) this.#socket.ping();
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason);
  }

  destroy(): void {
    this.#socket.terminate();
  }

  get #isOpen(): boolean {
    return this.#socket.readyState === this.#socket.OPEN;
  }
}
