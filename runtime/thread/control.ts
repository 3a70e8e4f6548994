// Control messages between a spawner and its place, on channels of their own. Used by place.ts, worker-place.ts and
// process-place.ts outside the place, and by the entries inside.
import type { MessagePort } from "node:worker_threads";
import type { ErrorRecord } from "../errors.ts";

export const controlChannel = "place";

/** Spawner to place. */
export type Command =
  | { readonly kind: "start"; readonly module: string; readonly init: unknown }
  | { readonly kind: "stop" }
  /** The place replies with a pong: see PlaceOptions.answersWithinMs. */
  | { readonly kind: "ping" };

/** Place to spawner. */
export type Report =
  | { readonly kind: "progress"; readonly value: unknown }
  | { readonly kind: "ready"; readonly value: unknown }
  | { readonly kind: "pong" }
  | { readonly kind: "failed"; readonly error: ErrorRecord }
  /** An uncaught exception: the place ends next. */
  | { readonly kind: "crashing"; readonly error: ErrorRecord }
  | { readonly kind: "stopped" };

/** Connections from other places: a thread gets a port; a process gets a path, and replies once it listens there. */
export const dialChannel = "place.dial";

export interface DialPort {
  readonly port: MessagePort;
}
export interface DialPath {
  readonly path: string;
}
export interface DialAnswer {
  /** null: the place listens. */
  readonly error: ErrorRecord | null;
}
