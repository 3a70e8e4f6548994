// Edge (HTTP front end): interface between sockets and request handlers. Implemented by uws/ and node/, and by tests without
// sockets. An edge does not interpret paths.
import type { ServerError } from "../../runtime/errors.ts";
import type { SocketLimits } from "./socket/limits.ts";

/** WebSocket connection that carries requests as messages. */
export interface RequestSocket {
  /** Aborted when the connection has closed. */
  readonly closed: AbortSignal;
}

export interface HttpRequest {
  /** Upper-case, for example GET. */
  readonly method: string;
  /** Path as sent by the client: not decoded, without the query. */
  readonly path: string;
  /** Part of the URL after `?`, not decoded. */
  readonly query: string;
  /** Names are in lower case; values of a repeated header are joined by ", ". */
  readonly headers: ReadonlyMap<string, string>;
  /**
   * File with the request body, for a route whose bodies are written to disk; `body` is then empty. The file is removed when the
   * request ends. Absent: the body is in memory.
   */
  readonly bodyFile?: string;
  /** Request body; empty after `releaseBody`. */
  readonly body: Uint8Array;
  /** Size of the received body. It stays set after `releaseBody`; 0 if the body was not read. */
  readonly bodyBytes: number;
  /** Remote address of the connection. If the client uses a proxy, this is the proxy's address. */
  readonly address: string;
  /** Fires when the client disconnects before the end of the response. */
  readonly signal: AbortSignal;
  /** WebSocket connection that carried the request as a message; absent: the request came over HTTP. */
  readonly socket?: RequestSocket;
  /**
   * Empties `body` and returns its bytes to the body budget, except `keptBytes` for data derived from the body. The kept bytes
   * are returned when the response ends, or when a later call passes a smaller number.
   */
  releaseBody(keptBytes?: number): void;
  /** Keeps the body counted in the budget until the returned function is called, even after the request has ended. */
  holdBody(): () => void;
}

export type ReplyHeaders = Readonly<Record<string, string>>;

/** Switches a connection to a WebSocket; `headers` are added to the response. Returns an error if the switch is refused. */
export type Upgrade = (headers: ReplyHeaders) => ServerError | null;

/** Reply to a request. After the client has disconnected or the response has ended, every call does nothing. */
export interface HttpReply {
  send(status: number, headers: ReplyHeaders, body: string | Uint8Array): void;
  stream(status: number, headers: ReplyHeaders): StreamSink;
  /**
   * Switches the connection to a WebSocket. Each message then becomes a POST request of the same path. Returns an error if too
   * many connections are open; the caller sends it. Absent if the request is not a WebSocket handshake.
   */
  readonly upgrade?: Upgrade;
}

/** Response body that is sent in pieces. Status and headers are sent with the first piece. */
export interface StreamSink {
  /** Writes a piece. Returns false if the client reads too slowly (back pressure); wait for `drained` before the next write. */
  write(piece: string | Uint8Array): boolean;
  /**
   * Restarts the connection's idle timeout. Call it every few seconds while waiting for `drained`, because a slow client's
   * connection would otherwise be closed.
   */
  keepOpen(): void;
  /** Resolves when writing may continue or the client has disconnected. */
  drained(): Promise<void>;
  end(): void;
  /** Closes the connection, which tells the client that the body is incomplete. */
  abort(): void;
}

/**
 * Handles a request. If `refusal` is not null, it is the error to send; the body was not read and is empty. Must not throw.
 */
export type EdgeHandler = (request: HttpRequest, reply: HttpReply, refusal: ServerError | null) => void;

/**
 * Checks the head of a request before its body is read. Returns the error to send, or null. The handler checks requests without
 * a body itself.
 */
export type AdmitRequest = (request: Pick<HttpRequest, "method" | "path" | "headers">) => ServerError | null;

export interface EdgeServer {
  readonly port: number;
  /**
   * Prepares the end, once: each response closes its connection from now on, so that clients open their next one elsewhere.
   * Connections are accepted until close(), except on a shared port. Resolves when no client has a connection, which happens only
   * on a shared port.
   */
  retire(): Promise<void>;
  /** Stops accepting connections. Requests in flight continue. */
  close(): void;
  /** Resolves when `close` was called and the last request in flight has ended. */
  readonly closed: Promise<void>;
  /** Closes all connections and aborts the signals of requests in flight. */
  forceClose(): void;
}

/** Returns the folder in which the body of a request is written to a file; null: the body is held in memory. */
export type SpoolFolder = (request: Pick<HttpRequest, "method" | "path">) => string | null;

export interface BodyLimits {
  /** Selects the bodies that are written to disk; default: none. */
  readonly spoolFolder?: SpoolFolder | undefined;
  /** Checks the head of a request before its body is read; default: every body is read. */
  readonly admit?: AdmitRequest | undefined;
  /** Maximum bytes of all request bodies in memory; default: 400 MiB. */
  readonly maxBodyBytesInFlight?: number;
  /** Maximum time in ms for a request body to arrive; default: 300 s. */
  readonly requestTimeoutMs?: number;
}

export interface EdgeOptions extends BodyLimits {
  readonly host: string;
  /** Port to listen on; 0: any free port. */
  readonly port: number;
  /** Whether other processes may listen on the port too (SO_REUSEPORT); default: false. */
  readonly sharesPort?: boolean;
  readonly sockets?: SocketLimits;
  /** Called when connections are rejected because the process has too few free file descriptors. */
  readonly onFull?: () => void;
}

/** Opens a server. Throws ServerError `config_invalid` if the address is unavailable. */
export type OpenEdge = (handler: EdgeHandler, options: EdgeOptions) => Promise<EdgeServer>;
