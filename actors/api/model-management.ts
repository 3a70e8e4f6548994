// Owns the face the front thread shows to the routes that manage models: load, unload, ask. Implemented by actors/front/inference-service.ts;
// which states follow each other is in docs/models.md.
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { ModelStatus } from "./inference.ts";

/** What became of a model that was to be loaded or unloaded. */
export interface ModelOutcome {
  /** The configured id, also where "default" was named. */
  readonly id: string;
  /** As it is now: `reloading` where another request is at it already. */
  readonly status: ModelStatus;
  /** Why it is not as it was asked to be. */
  readonly error: ErrorRecord | null;
}

/** Names are model ids or "default"; all throw model_not_found. */
export interface ModelManagement {
  statusOf(name: string): ModelOutcome;
  /**
   * Loads a model that is not loaded, and one that is anew: the requests on it are answered first, those that come wait.
   * Goes on when nobody waits for it any more.
   */
  reload(name: string): Promise<ModelOutcome>;
  /** Frees a model once the requests on it are answered. One that is unloaded already stays so. */
  unload(name: string): Promise<ModelOutcome>;
}
