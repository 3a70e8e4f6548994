// Socket session: handles one WebSocket connection. Each message becomes a POST request to the path of the handshake, and the
// response is sent as messages. One request runs at a time. The session enforces the limits on idle time and lifetime.
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { errorBody, statusOf } from "../../errors.ts";
import { type BodyIntake, EdgeRequest } from "../body-intake.ts";
import type { HttpRequest, RequestSocket } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";
import { closeCodes, type SocketConnection, type SocketListener } from "./connection.ts";
import type { SocketLimits } from "./limits.ts";
import { errorMessage, SocketReply } from "./socket-reply.ts";

/** Interval in ms between pings. It is shorter than the idle limits of proxies, which are 60 s or more. */
const PING_EVERY_MS = 20_000;

/** Headers of the handshake that are not copied to the requests of the connection. */
const handshakeHeaders = new Set(["connection", "upgrade", "x-request-id"]);

/** Objects and limits that all sessions of a server share. */
export interface SessionOptions {
  readonly intake: BodyIntake;
  readonly inFlight: InFlight;
  readonly limits: SocketLimits;
  readonly onClosed: (session: SocketSession) => void;
}

export class SocketSession implements SocketListener {
  readonly #connection: SocketConnection;
  readonly #handshake: HttpRequest;
  readonly #options: SessionOptions;
  readonly #closed = new AbortController();
  readonly #socket: RequestSocket = { closed: this.#closed.signal };
  readonly #idle: NodeJS.Timeout;
  readonly #lifetime: NodeJS.Timeout;
  readonly #pings: NodeJS.Timeout;
  /** Reply to the request in progress; null if there is none. */
  #reply: SocketReply | null = null;
  /** Message that arrived after the last event of the current reply, but before the route ended the reply. */
  #next: Uint8Array | null = null;
  #isExpired = false;
  #isClosing = false;

  constructor(connection: SocketConnection, handshake: HttpRequest, options: SessionOptions) {
    this.#connection = connection;
    this.#handshake = handshake;
    this.#options = options;
    const { idleMs, lifetimeMs } = options.limits;
    this.#idle = setTimeout(() => this.#idled(), idleMs).unref();
    this.#lifetime = setTimeout(() => this.#expire(), lifetimeMs).unref();
    this.#pings = setInterval(() => connection.ping(), PING_EVERY_MS).unref();
  }

  message(data: Uint8Array): void {
    if (this.#isClosing) return;
    if (this.#reply === null) this.#begin(data);
    else if (this.#reply.isLastSent && this.#next === null) this.#next = data;
    else this.#refuse(new ServerError("conflict", isBusy));
  }

  closed(): void {
    this.#isClosing = true;
    this.#next = null;
    clearTimeout(this.#idle);
    clearTimeout(this.#lifetime);
    clearInterval(this.#pings);
    this.#reply?.connectionClosed();
    this.#reply = null;
    this.#closed.abort();
    this.#options.onClosed(this);
  }

  /** Closes the connection as soon as no request is in progress. Called when the server stops. */
  drain(): void {
    if (this.#reply === null) this.#close(closeCodes.goingAway, "the server is shutting down");
  }

  destroy(): void {
    this.#connection.destroy();
  }

  #begin(data: Uint8Array): void {
    const { intake, inFlight } = this.#options;
    const reply = new SocketReply(this.#connection, inFlight, () => this.#ended());
    this.#reply = reply;
    intake.receive(new MessageRequest(this.#handshake, reply.signal, this.#socket), reply, data);
  }

  #ended(): void {
    this.#reply = null;
    this.#idle.refresh();
    const next = this.#next;
    this.#next = null;
    if (this.#options.inFlight.isRetiring) this.drain();
    else if (this.#isExpired) this.#expire();
    else if (next !== null) this.#begin(next);
  }

  #idled(): void {
    if (this.#reply !== null) return;
    this.#close(closeCodes.normal, `no request for ${this.#options.limits.idleMs / 1000} s`);
  }

  #expire(): void {
    this.#isExpired = true;
    if (this.#reply !== null) return;
    const limit = `${this.#options.limits.lifetimeMs / 1000} s (websocket_lifetime_secs)`;
    const message = `a WebSocket connection may be open for ${limit}; open a new connection to continue`;
    this.#refuse(new ServerError("websocket_connection_limit_reached", message));
    this.#close(closeCodes.normal, "the connection has reached its maximum lifetime");
  }

  #refuse(error: ServerError): void {
    const text = errorMessage(statusOf(error.code), errorBody(toErrorRecord(error)));
    // A client that reads too slowly is disconnected. Otherwise, a client that sends messages but reads no replies would fill
    // the memory.
    const isRead = this.#reply?.sendBetween(text) ?? this.#connection.send([{ text, part: "whole" }]);
    if (!isRead) this.#connection.destroy();
  }

  #close(code: number, reason: string): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#connection.close(code, reason);
  }
}

const isBusy =
  "a response is in progress on this connection; wait for its last event, or open another connection for parallel responses";

/** Request that arrived as a message on a WebSocket connection. */
class MessageRequest extends EdgeRequest {
  readonly method = "POST";
  readonly path: string;
  readonly query = "";
  readonly address: string;
  readonly signal: AbortSignal;
  readonly socket: RequestSocket;

  constructor(handshake: HttpRequest, signal: AbortSignal, socket: RequestSocket) {
    super();
    const kept = [...handshake.headers].filter(([name]) => !handshakeHeaders.has(name) && !name.startsWith("sec-"));
    this.path = handshake.path;
    for (const [name, value] of kept) this.headers.set(name, value);
    this.headers.set("content-type", "application/json");
    this.address = handshake.address;
    this.signal = signal;
    this.socket = socket;
  }
}
