// Endpoint: an ordered, bounded message connection with one peer place, over a MessagePort (port-endpoint.ts, worker threads) or a
// socket (socket-endpoint.ts, child processes). Callers do not depend on which.
import type { MessagePort } from "node:worker_threads";
import { ServerError } from "../errors.ts";

/** Objects that can move to another thread instead of being copied. Sockets always copy. */
export type Transferable = ArrayBuffer | MessagePort;

/** How a peer ended. */
export interface PeerExit {
  /** For logs and error messages: "stopped", "killed by SIGABRT", "exited with code 7". */
  readonly reason: string;
  readonly code: number | null;
  readonly signal: string | null;
  /** True if the peer, or this side, closed on purpose. */
  readonly orderly: boolean;
}

/** A connection with ONE peer place. Payloads are plain data; typed arrays keep their type. */
export interface Endpoint {
  /** The peer place's name. */
  readonly peer: string;
  /**
   * Queues one message. False: the queue is above its high-water mark (slow down), or the connection is lost (see `exit`). Past
   * the hard limit the connection closes, and `exit` says why. Throws if the payload cannot be sent at all.
   */
  send(channel: string, payload: unknown, transfer?: readonly Transferable[]): boolean;
  /**
   * Sets the only handler of a channel, once. Messages that arrived before are held and delivered to it.
   */
  receive(channel: string, handler: (payload: never) => void): void;
  /** Resolves when the peer is gone. Never rejects. */
  readonly exit: Promise<PeerExit>;
  /** Closes the connection after the queued messages. The peer sees an orderly exit. */
  close(): void;
}

/** The error of requests to a peer that is gone. */
export function goneError(peer: string, exit: PeerExit): ServerError {
  return new ServerError("peer_gone", `"${peer}" is gone (${exit.reason}); try again`);
}
