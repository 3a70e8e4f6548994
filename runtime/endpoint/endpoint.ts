// Owns the one interface through which places talk: an ordered, bounded message link with one peer. Its two carriers are
// port-endpoint.ts (worker threads) and socket-endpoint.ts (child processes); nobody above asks which one it is.
import type { MessagePort } from "node:worker_threads";
import { ServerError } from "../errors.ts";

/** What can move to another thread instead of being copied. Sockets ignore it and copy. */
export type Transferable = ArrayBuffer | MessagePort;

/** How a peer came to be gone. */
export interface PeerExit {
  /** For logs and error messages: "stopped", "killed by SIGABRT", "exited with code 7". */
  readonly reason: string;
  readonly code: number | null;
  readonly signal: string | null;
  /** True if the peer, or this side, closed on purpose. */
  readonly orderly: boolean;
}

/** A link with ONE peer place. Payloads are plain data; typed arrays keep their type. */
export interface Endpoint {
  /** The peer place's name. */
  readonly peer: string;
  /**
   * Queues one message. False means the carrier holds more than its high-water mark (or the link is gone, see `exit`):
   * slow down. Past the hard limit the link closes and `exit` says why. Throws on a payload that can never be sent.
   */
  send(channel: string, payload: unknown, transfer?: readonly Transferable[]): boolean;
  /**
   * Sets the one handler of a channel, for the link's life. Messages that came before are held and delivered to it.
   */
  receive(channel: string, handler: (payload: never) => void): void;
  /** Settles once, when the peer is gone. Never rejects. */
  readonly exit: Promise<PeerExit>;
  /** Closes the link after what was sent. The peer sees an orderly exit. */
  close(): void;
}

/** The error for whatever was under way with a peer that is gone. */
export function goneError(peer: string, exit: PeerExit): ServerError {
  return new ServerError("peer_gone", `"${peer}" is gone (${exit.reason}); try again`);
}
