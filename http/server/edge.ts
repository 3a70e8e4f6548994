// Edge: the interface between sockets and handlers: request, reply, body in pieces, listening server. Implemented by uws/ and
// node/, and by tests without sockets. It is independent of paths.
import type { ServerError } from "../../runtime/errors.ts";

export interface HttpRequest {
  /** Upper-case. */
  readonly method: string;
  /** As sent: not decoded, without the query. */
  readonly path: string;
  /** The part after `?`, not decoded. */
  readonly query: string;
  /** Names in lower case; values of a repeated header are joined by ", ". */
  readonly headers: ReadonlyMap<string, string>;
  /** Empty after `releaseBody`. */
  readonly body: Uint8Array;
  /** Size of the received body, also after its release; 0: not read. */
  readonly bodyBytes: number;
  /** Remote address of the connection, possibly a proxy. */
  readonly address: string;
  /** Fires when the client disconnects before the end of the response. */
  readonly signal: AbortSignal;
  /**
   * Returns the bytes to the body budget and empties `body`. `keptBytes`, for data derived from the body, stay counted until the
   * response ends or another call names fewer.
   */
  releaseBody(keptBytes?: number): void;
  /** Keeps the body in the budget until the returned function is called, even after the end of the request. */
  holdBody(): () => void;
}

export type ReplyHeaders = Readonly<Record<string, string>>;

/** The response to a request. After a disconnect or the end of the response every call is a no-op. */
export interface HttpReply {
  send(status: number, headers: ReplyHeaders, body: string | Uint8Array): void;
  stream(status: number, headers: ReplyHeaders): StreamSink;
}

/** A response body sent in pieces. Status and headers are sent with the first piece. */
export interface StreamSink {
  /** Back pressure: false if the client reads too slowly; wait for `drained` before the next write. */
  write(piece: string | Uint8Array): boolean;
  /** Prevents the idle timeout of a slow client; call it every few seconds while waiting for `drained`. */
  keepOpen(): void;
  /** Settles when writing may continue, or the client has disconnected. */
  drained(): Promise<void>;
  end(): void;
  /** Closes the connection, so that the client knows that the body is incomplete. */
  abort(): void;
}

/** Handles a request. `refusal`: why the body was not read, which is empty then. Must not throw. */
export type EdgeHandler = (request: HttpRequest, reply: HttpReply, refusal: ServerError | null) => void;

export interface EdgeServer {
  readonly port: number;
  /** Stops accepting connections; requests in flight continue. */
  close(): void;
  /** Settles when `close` was called and the last request in flight has ended. */
  readonly closed: Promise<void>;
  /** Closes all connections; the signals of requests in flight fire. */
  forceClose(): void;
}

export interface EdgeOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Bytes of all bodies in memory; default: 400 MiB. */
  readonly maxBodyBytesInFlight?: number;
  /** Time in ms in which a body must arrive; default: 300 s. */
  readonly requestTimeoutMs?: number;
  /** Called when connections are refused because the process has too few free file descriptors. */
  readonly onFull?: () => void;
}

/** Opens a server on an edge. Throws ServerError `config_invalid` if the address is unavailable. */
export type OpenEdge = (handler: EdgeHandler, options: EdgeOptions) => Promise<EdgeServer>;
