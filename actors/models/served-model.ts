// Owns what a model to serve is, and the words for what is said of one: in errors, in the log. Used by front.ts and by the
// lives of the models.
import type { EngineName, ModelSpec } from "../../engines/engine.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import { type ErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import type { Place, PlaceKind } from "../../runtime/thread/place.ts";
import type { ModelCapabilities } from "../api/inference.ts";
import type { AdapterSettings } from "../lora-registry/model-adapters.ts";
import type { LeasedAdapter, ModelPlaceReady, ModelStatistics } from "../messages.ts";

/** A model to serve. */
export interface ServedModel {
  readonly id: string;
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  readonly carrier: PlaceKind;
  /** Its dynamic LoRA runtime; null where it has none. spec.adapters has the same limits. */
  readonly adapters: AdapterSettings | null;
  /** The adapter that every request is answered with, and nobody chooses; null where there is none. Then `adapters` is null. */
  readonly ownAdapter: PreparedAdapter | null;
}

/** How a model is doing; the refusals are of requests, since the server was started. */
export interface ServedStatistics extends ModelStatistics {
  readonly queueFull: number;
  readonly queueTimeouts: number;
}

/** What every request on a model with an adapter of its own runs with. */
export const ownRunAdapter: LeasedAdapter = { id: 1, generation: null };

/** What a loaded model can do. A score of two texts is no embedding. */
export function capabilitiesOf({ capabilities }: ModelPlaceReady): ModelCapabilities {
  const { generates, pooling } = capabilities;
  return { generates, embeds: pooling !== null && pooling !== "rank" };
}

export function loading(id: string): ErrorRecord {
  return { code: "model_loading", message: `model "${id}" is being loaded; try again shortly` };
}

export function failed(id: string, error: unknown): ErrorRecord {
  return { code: "model_failed", message: `model "${id}" could not be loaded: ${toErrorRecord(error).message}` };
}

export function notLoaded(id: string): ErrorRecord {
  return {
    code: "model_state_conflict",
    message: `model "${id}" is not loaded, or about to be unloaded; load it first`,
  };
}

/** What a request is told that the end of the server ends. */
export const shuttingDown: ErrorRecord = {
  code: "draining",
  message: "the server is shutting down; send the request to another one",
};

const mebibyte = 1024 * 1024;

/** What the log says of a model that has been loaded. */
export function loadedFields(id: string, loadMs: number, place: Place<ModelPlaceReady>): object {
  const { card, capacity } = place.ready;
  return {
    model: id,
    loadMs: Math.round(loadMs),
    enginePid: place.pid ?? process.pid,
    engine: card.engine,
    backend: card.backend,
    weightsMiB: Math.round(card.tensorBytes / mebibyte),
    kvCacheMiB: Math.round(card.kvCacheBytes / mebibyte),
    sequences: capacity.maxSequences,
    tokensPerSequence: capacity.sequenceTokens,
  };
}
