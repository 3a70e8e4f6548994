// Transitions: the table of the allowed status changes of a model, with their reasons. docs/models.md shows the same table, and
// the tests of the lifecycle check every status change against it.
import type { ModelStatus } from "../api/inference.ts";

/** Columns: from, to, reason, condition. */
export const transitions = [
  ["unloaded", "reloading", "start", "the server starts and loads the model"],
  ["unloaded", "reloading", "request", "a request names the model"],
  ["unloaded", "reloading", "reload", "`POST /v1/models/reload`"],
  ["loaded", "unloaded", "reload", "`POST /v1/models/reload`, and the requests in flight have ended"],
  ["reloading", "loaded", "ready", "loading has finished"],
  ["reloading", "unloaded", "failed", "loading failed, or the engine was restarted too often"],
  ["loaded", "unloaded", "failed", "the engine ended once too often"],
  ["reloading", "unloaded", "unwanted", "all waiting requests were cancelled before the model got a slot"],
  ["loaded", "reloading", "crash", "the engine ended and is restarted"],
  ["loaded", "unloaded", "unload", "`POST /v1/models/unload`, and the requests in flight have ended"],
  ["reloading", "unloaded", "unload", "`POST /v1/models/unload`, and no request waits for the model"],
  ["loaded", "unloaded", "idle", "no request has named the model for `idle_unload_secs`"],
  ["loaded", "unloaded", "evict", "another model needs the slot (`max_loaded_models`), and the requests have ended"],
  ["reloading", "unloaded", "evict", "another model needs the slot while the engine is restarted"],
  ["loaded", "unloaded", "stop", "the server stops"],
  ["reloading", "unloaded", "stop", "the server stops while the model is being loaded"],
] as const satisfies readonly (readonly [ModelStatus, ModelStatus, string, string])[];

export type TransitionReason = (typeof transitions)[number][2];
