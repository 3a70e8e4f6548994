// Options of the inference service, made by cli/ from the settings.
import type { PrefixStoreOptions } from "../../engines/decoding/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import type { SpeculationOptions } from "../../engines/decoding/speculation/options.ts";
import type { InputSums, ModelSpec } from "../../engines/engine.ts";
import type { RestartPolicy } from "../../runtime/actor/supervision.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { GenerationPlaceInit, SpeechLimits } from "../messages.ts";
import type { ServedModel } from "../models/served-model.ts";

/** Inputs of a model's matrices, collected while it served. */
export interface Collected {
  readonly sums: readonly InputSums[];
  /** Name of the file to which the importance matrix is written; null: none. */
  readonly saveAs: string | null;
}

/** A model to convert, and to what. */
export interface RequantizeRequest {
  readonly id: string;
  /** Spec with which the model is loaded now. */
  readonly spec: ModelSpec;
  readonly level: string;
  /** Source of the importance of columns; null: the setting `imatrix`. */
  readonly collected: Collected | null;
  readonly signal: AbortSignal;
  /** Called with the fraction of the conversion, 0..1. */
  readonly onProgress: (fraction: number) => void;
}

export interface ServiceOptions {
  readonly models: readonly ServedModel[];
  readonly defaultModelId: string;
  /** Seed of requests that set none; null: random. */
  readonly defaultSeed: number | null;
  readonly limits: SchedulerLimits;
  /** Replaces the module that a model's worker runs, in tests and benchmarks. */
  readonly modelModule?: URL;
  readonly frameIntervalMs: number;
  readonly speculation: SpeculationOptions;
  readonly prefixStore: PrefixStoreOptions | null;
  readonly generationPlace: GenerationPlaceInit;
  /** Folder of prepared adapters. It is removed when this process ends. */
  readonly adapterFolder: string;
  /** Real path of the folder that must contain all adapters loaded at run time; null: any folder. */
  readonly adapterRoot: string | null;
  /** Maximum number of models loaded at the same time; null: all. */
  readonly maxLoadedModels: number | null;
  /** A model is unloaded after this time without a request; 0: never. */
  readonly idleUnloadMs: number;
  /**
   * Converts the source of a model to another quantization level and returns the spec of the result, or the given spec if it has
   * that level already. Absent: models cannot be converted.
   */
  readonly requantize?: (request: RequantizeRequest) => Promise<ModelSpec>;
  readonly speechLimits: SpeechLimits;
  /** Returns the content of a stored file; absent: no files are stored. */
  readonly readFile?: (id: string) => Promise<Uint8Array>;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly clock?: Clock;
  readonly log: Logger;
  /** Called while the server starts, with the fraction of a model that is loaded. */
  readonly onLoadProgress: (id: string, fraction: number) => void;
}
