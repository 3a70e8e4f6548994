// Edge (HTTP front end): interface between sockets and request handlers. Implemented by uws/ and node/, and, without sockets,
// by tests. An edge does not interpret paths.
import type { ServerError } from "../../runtime/errors.ts";
import type { AddressOf } from "./access/trusted-proxies.ts";
import type { SocketLimits } from "./socket/limits.ts";

/** WebSocket connection on which requests arrive as messages. */
export interface RequestSocket {
  /** Aborted when the connection has closed. */
  readonly closed: AbortSignal;
}

export interface HttpRequest {
  /** HTTP method in upper case, for example GET. */
  readonly method: string;
  /** Path as sent by the client: not decoded, without the query. */
  readonly path: string;
  /** Query string: the part of the URL after `?`, not decoded. */
  readonly query: string;
  /** Request headers. Names are in lower case; values of a repeated header are joined by ", ". */
  readonly headers: ReadonlyMap<string, string>;
  /**
   * Path of the file with the request body, for routes whose bodies are written to disk; `body` is then empty. The file is
   * deleted when the request ends. Absent if the body is in memory.
   */
  readonly bodyFile?: string;
  /** Request body; empty after `releaseBody`. */
  readonly body: Uint8Array;
  /** Number of body bytes received; 0 if the body was not read. Not changed by `releaseBody`. */
  readonly bodyBytes: number;
  /** Address of the client: the remote address of the connection, or, behind a trusted proxy, the one that it forwards. */
  readonly address: string;
  /** Aborted when the client disconnects before the response has ended. */
  readonly signal: AbortSignal;
  /** WebSocket connection on which the request arrived as a message; absent if it arrived over HTTP. */
  readonly socket?: RequestSocket;
  /**
   * Empties `body` and returns its bytes to the body budget, except `keptBytes` for data derived from the body. The kept bytes
   * return to the budget when the response ends, or when a later call passes a smaller number.
   */
  releaseBody(keptBytes?: number): void;
  /** Keeps the body counted in the budget, even after the request has ended, until the returned function is called. */
  holdBody(): () => void;
}

export type ReplyHeaders = Readonly<Record<string, string>>;

/** Headers of a response. A list is sent as one header for each of its values; only `set-cookie` of an embedding program's routes is one. */
export type ListedHeaders = Readonly<Record<string, string | string[]>>;

/** Upgrades a connection to a WebSocket; `headers` are added to the response. Returns an error if the upgrade is refused. */
export type Upgrade = (headers: ReplyHeaders) => ServerError | null;

/** Reply to a request. After the response has ended or the client has disconnected, every call does nothing. */
export interface HttpReply {
  send(status: number, headers: ListedHeaders, body: string | Uint8Array): void;
  stream(status: number, headers: ListedHeaders): StreamSink;
  /**
   * Upgrades the connection to a WebSocket. Each message then becomes a POST request of the same path. Returns an error if too
   * many connections are open; the caller must send it. Absent if the request is not a WebSocket handshake.
   */
  readonly upgrade?: Upgrade;
}

/** Response body that is sent in pieces. Status and headers are sent with the first piece. */
export interface StreamSink {
  /** Writes a piece. Returns false if the client reads too slowly (back pressure); wait for `drained` before the next write. */
  write(piece: string | Uint8Array): boolean;
  /**
   * Restarts the connection's idle timeout. Call it every few seconds while waiting for `drained`; otherwise the connection of
   * a slow client would be closed.
   */
  keepOpen(): void;
  /** Resolves when writing may continue or the client has disconnected. */
  drained(): Promise<void>;
  end(): void;
  /** Closes the connection, which tells the client that the body is incomplete. */
  abort(): void;
}

/** Handles a request. `refusal`: error to send instead of handling it; the body was not read and is empty. Must not throw. */
export type EdgeHandler = (request: HttpRequest, reply: HttpReply, refusal: ServerError | null) => void;

/**
 * Checks the headers of a request before its body is read. Returns the error to send, or null. Not called for requests without
 * a body, which the handler checks itself.
 */
export type AdmitRequest = (request: Pick<HttpRequest, "method" | "path" | "headers">) => ServerError | null;

export interface EdgeServer {
  readonly port: number;
  /**
   * Prepares for the shutdown: from now on, each response closes its connection, so that clients open new connections to other
   * servers. New connections are accepted until close(), except on a shared port. On a shared port, the promise resolves when
   * no client has a connection; otherwise it never resolves. Call it once.
   */
  retire(): Promise<void>;
  /** Stops accepting connections. Requests in flight continue. */
  close(): void;
  /** Resolves when `close` was called and the last request in flight has ended. */
  readonly closed: Promise<void>;
  /** Closes all connections and aborts the signals of requests in flight. */
  forceClose(): void;
}

/** Returns the folder for the file to which a request's body is written; null if the body is held in memory. */
export type SpoolFolder = (request: Pick<HttpRequest, "method" | "path">) => string | null;

export interface BodyLimits {
  /** Selects the bodies that are written to disk; default: all bodies are held in memory. */
  readonly spoolFolder?: SpoolFolder | undefined;
  /** Checks the headers of a request before its body is read; default: all bodies are read. */
  readonly admit?: AdmitRequest | undefined;
  /** Maximum bytes of all request bodies in memory; default: 400 MiB. */
  readonly maxBodyBytesInFlight?: number;
  /** Maximum milliseconds until a request body must have arrived; default: 300 s. */
  readonly requestTimeoutMs?: number;
}

export interface EdgeOptions extends BodyLimits {
  readonly host: string;
  /** Port to listen on; 0: any free port. */
  readonly port: number;
  /** Whether other processes may listen on the port too (SO_REUSEPORT); default: false. */
  readonly sharesPort?: boolean;
  readonly sockets?: SocketLimits;
  /** Returns the address of a request's client; default: the remote address of its connection. */
  readonly addressOf?: AddressOf;
  /** Called when a connection is rejected because the process has too few free file descriptors. */
  readonly onFull?: () => void;
}

/** Opens a server. Throws ServerError `config_invalid` if the address is unavailable. */
export type OpenEdge = (handler: EdgeHandler, options: EdgeOptions) => Promise<EdgeServer>;
