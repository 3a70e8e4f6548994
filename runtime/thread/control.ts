// Control messages between a spawner and its place (a worker thread or child process), on separate channels. Used outside the
// place by place.ts, worker-place.ts and process-place.ts, and inside it by the entries.
import type { MessagePort } from "node:worker_threads";
import type { ErrorRecord } from "../errors.ts";

export const controlChannel = "place";

/** Messages from the spawner to the thread or process that it has started (its place). */
export type Command =
  | { readonly kind: "start"; readonly module: string; readonly init: unknown }
  | { readonly kind: "stop" }
  /** The thread or process replies with a pong; see PlaceOptions.answersWithinMs. */
  | { readonly kind: "ping" };

/** Messages from a place (thread or process) to its spawner. */
export type Report =
  | { readonly kind: "progress"; readonly value: unknown }
  | { readonly kind: "ready"; readonly value: unknown }
  | { readonly kind: "pong" }
  | { readonly kind: "failed"; readonly error: ErrorRecord }
  /** Reports an uncaught exception, after which the thread or process ends. */
  | { readonly kind: "crashing"; readonly error: ErrorRecord }
  | { readonly kind: "stopped" };

/**
 * Channel for connections from other threads and processes. A thread receives a message port. A process receives a socket path,
 * and replies when it listens on this socket.
 */
export const dialChannel = "place.dial";

export interface DialPort {
  readonly port: MessagePort;
}
export interface DialPath {
  readonly path: string;
}
export interface DialAnswer {
  /** Error of the attempt to listen on the socket; null if the process listens. */
  readonly error: ErrorRecord | null;
}
