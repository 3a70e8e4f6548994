// Owns the messages between a spawner and its place, on channels they keep for themselves. Read by place.ts and the carriers
// (outside) and the entries (inside), so that both carriers speak the same.
import type { MessagePort } from "node:worker_threads";
import type { ErrorRecord } from "../errors.ts";

export const controlChannel = "place";

/** Spawner to place. */
export type Command =
  | { readonly kind: "start"; readonly module: string; readonly init: unknown }
  | { readonly kind: "stop" }
  /** To be answered with a pong: see PlaceOptions.answersWithinMs. */
  | { readonly kind: "ping" };

/** Place to spawner. */
export type Report =
  | { readonly kind: "progress"; readonly value: unknown }
  | { readonly kind: "ready"; readonly value: unknown }
  | { readonly kind: "pong" }
  | { readonly kind: "failed"; readonly error: ErrorRecord }
  /** An exception nobody caught: the place is about to die of it. */
  | { readonly kind: "crashing"; readonly error: ErrorRecord }
  | { readonly kind: "stopped" };

/** How other places get in: a thread is handed a port, a process is told where to listen and answers when it does. */
export const dialChannel = "place.dial";

export interface DialPort {
  readonly port: MessagePort;
}
export interface DialPath {
  readonly path: string;
}
export interface DialAnswer {
  /** Null once the place listens. */
  readonly error: ErrorRecord | null;
}
