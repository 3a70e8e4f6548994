// Edge: the interface between sockets and handlers: a request, a reply, a body in pieces, a listening server. Implemented by
// http/uws and http/node, and by tests with no socket at all. Nothing here knows what any path means.
import type { ServerError } from "../../runtime/errors.ts";

export interface HttpRequest {
  /** Upper-case. */
  readonly method: string;
  /** As it was sent: not decoded, without the query. */
  readonly path: string;
  /** What follows `?`, not decoded. */
  readonly query: string;
  /** Names in lower case; values of a repeated header are joined by ", ". */
  readonly headers: ReadonlyMap<string, string>;
  /** Empty from `releaseBody` on. */
  readonly body: Uint8Array;
  /** Size of the body as it came; 0 where it was not read. Stays when the body is released. */
  readonly bodyBytes: number;
  /** Of the other end of the connection, which may be a proxy. */
  readonly address: string;
  /** Fires when the client goes away before its answer has ended. */
  readonly signal: AbortSignal;
  /**
   * Gives the bytes back to the budget of bodies; `body` is empty from then on. `keptBytes` of them stay counted until the
   * answer ends, or until another call names fewer: for what has been made of the body.
   */
  releaseBody(keptBytes?: number): void;
  /** What the body counts for stays counted until the returned function is called, though the request may end before. */
  holdBody(): () => void;
}

export type ReplyHeaders = Readonly<Record<string, string>>;

/** The one answer to a request. After the client has gone, or the answer has ended, every call does nothing. */
export interface HttpReply {
  send(status: number, headers: ReplyHeaders, body: string | Uint8Array): void;
  stream(status: number, headers: ReplyHeaders): StreamSink;
}

/** A body sent piece by piece. Status and headers leave with the first piece. */
export interface StreamSink {
  /** False when the client reads more slowly than we write: then write no more before `drained`. */
  write(piece: string | Uint8Array): boolean;
  /** To be called every few seconds while `drained` is waited for: the client is behind, and yet to be kept. */
  keepOpen(): void;
  /** Settles when writing may go on, and at once if it may already or if the client has gone. */
  drained(): Promise<void>;
  end(): void;
  /** Cuts the connection, so that the client knows the body is not whole. */
  abort(): void;
}

/** Answers a request. `refusal` says why the body was not read; the body is empty then. Must not throw. */
export type EdgeHandler = (request: HttpRequest, reply: HttpReply, refusal: ServerError | null) => void;

export interface EdgeServer {
  readonly port: number;
  /** Stops accepting connections at once; requests in flight go on. */
  close(): void;
  /** Settles after `close`, when the last request in flight has ended. */
  readonly closed: Promise<void>;
  /** Cuts every connection: the requests in flight see their signal fire. */
  forceClose(): void;
}

export interface EdgeOptions {
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  /** Most bytes of bodies that are not yet parsed; 400 MiB unless said otherwise. */
  readonly maxBodyBytesInFlight?: number;
  /** Longest that the body of one request may take to arrive; 300 s unless said otherwise. */
  readonly requestTimeoutMs?: number;
  /** Called when connections are refused from now on, as the process can open too few files more. */
  readonly onFull?: () => void;
}

/** Opens a server on one kind of edge. Throws ServerError `config_invalid` where the address cannot be had. */
export type OpenEdge = (handler: EdgeHandler, options: EdgeOptions) => Promise<EdgeServer>;
