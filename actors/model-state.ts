// Owns what the front knows of one model it serves, and the words for a model that cannot be used. Only front.ts changes it.
import type { EngineName, ModelSpec } from "../engines/engine.ts";
import type { Supervisor } from "../runtime/actor/supervision.ts";
import { type ErrorRecord, toErrorRecord } from "../runtime/errors.ts";
import type { Logger } from "../runtime/log.ts";
import type { Carrier, Place } from "../runtime/thread/place.ts";
import type { ModelCapabilities, ModelStatus } from "./inference.ts";
import { LastingStatistics } from "./lasting-statistics.ts";
import type { ModelPlaceReady, ModelStatistics } from "./messages.ts";
import { Refusals } from "./refusals.ts";

/** A model to serve. */
export interface ServedModel {
  readonly id: string;
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  readonly carrier: Carrier;
}

export interface ModelState {
  readonly served: ServedModel;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly refusals: Refusals;
  readonly statistics: LastingStatistics;
  status: ModelStatus;
  /** As it was when it was last loaded. */
  capabilities: ModelCapabilities | null;
  loadStartedMs: number;
  place: Place<ModelPlaceReady> | null;
  supervisor: Supervisor | null;
  /** Why it takes no requests, while it does not. */
  unavailable: ErrorRecord;
}

/** How a model is doing; the refusals are of requests, since the server was started. */
export interface ServedStatistics extends ModelStatistics {
  readonly queueFull: number;
  readonly queueTimeouts: number;
}

/** A model that is not loaded yet. */
export function modelState(served: ServedModel, log: Logger): ModelState {
  return {
    served,
    createdAt: Math.floor(Date.now() / 1000),
    refusals: new Refusals(served.id, log),
    statistics: new LastingStatistics(),
    status: "reloading",
    capabilities: null,
    loadStartedMs: 0,
    place: null,
    supervisor: null,
    unavailable: loading(served.id),
  };
}

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

const mebibyte = 1024 * 1024;

/** What the log says of a model that has been loaded. */
export function loadedFields({ served, loadStartedMs }: ModelState, place: Place<ModelPlaceReady>): object {
  const { card, capacity } = place.ready;
  return {
    model: served.id,
    loadMs: Math.round(performance.now() - loadStartedMs),
    enginePid: place.pid ?? process.pid,
    engine: card.engine,
    backend: card.backend,
    weightsMiB: Math.round(card.tensorBytes / mebibyte),
    kvCacheMiB: Math.round(card.kvCacheBytes / mebibyte),
    sequences: capacity.maxSequences,
    tokensPerSequence: capacity.sequenceTokens,
  };
}
