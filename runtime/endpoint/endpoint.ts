// Endpoint: an ordered, bounded message connection with one peer. It uses a MessagePort for worker threads (port-endpoint.ts)
// or a socket for child processes (socket-endpoint.ts). Callers need not distinguish the two.
import type { MessagePort } from "node:worker_threads";
import { ServerError } from "../errors.ts";

/** Objects that can be transferred to another thread instead of being copied. Sockets always copy. */
export type Transferable = ArrayBuffer | MessagePort;

/** How a peer ended. */
export interface PeerExit {
  /** Text for logs and error messages: "stopped", "killed by SIGABRT", "exited with code 7". */
  readonly reason: string;
  readonly code: number | null;
  readonly signal: string | null;
  /** True if one of the two peers closed the connection on purpose. */
  readonly orderly: boolean;
}

/** A connection with ONE peer: another thread or process. Payloads are plain data; typed arrays keep their type. */
export interface Endpoint {
  readonly peer: string;
  /**
   * Queues one message. Returns false if the queue is above its high-water mark (the caller should slow down), or if the
   * connection is lost (see `exit`). Above the hard limit the connection closes, and `exit` gives the reason. Throws if the
   * payload cannot be sent at all.
   */
  send(channel: string, payload: unknown, transfer?: readonly Transferable[]): boolean;
  /**
   * Sets the handler of a channel. A channel has only one handler, which is set once. Messages that arrived earlier were held
   * and are now delivered.
   */
  receive(channel: string, handler: (payload: never) => void): void;
  /** Resolves when the peer is gone. Never rejects. */
  readonly exit: Promise<PeerExit>;
  /** Closes the connection after the queued messages were sent. The peer sees an orderly exit. */
  close(): void;
}

/** Returns the error for requests to a peer that is gone. */
export function goneError(peer: string, exit: PeerExit): ServerError {
  return new ServerError("peer_gone", `"${peer}" is gone (${exit.reason}); try again`);
}
