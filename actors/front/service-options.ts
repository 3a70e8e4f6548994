// Options of the inference service. cli/ creates them from the settings.
import type { PrefixStoreOptions } from "../../engines/decoding/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import type { SpeculationOptions } from "../../engines/decoding/speculation/options.ts";
import type { InputSums, ModelSpec } from "../../engines/engine.ts";
import type { RestartPolicy } from "../../runtime/actor/supervision.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { GenerationPlaceInit, SpeechLimits } from "../messages.ts";
import type { ServedModel } from "../models/served-model.ts";

/** Calibration data: the inputs of a model's weight matrices, collected while the model served requests. */
export interface Collected {
  readonly sums: readonly InputSums[];
  /** Name of the file to which the importance matrix is written; null = do not write it. */
  readonly saveAs: string | null;
}

/** A request to convert a model to another quantization level. */
export interface RequantizeRequest {
  readonly id: string;
  /** Spec with which the model is currently loaded. */
  readonly spec: ModelSpec;
  readonly level: string;
  /** Data from which the importance of the weight columns is computed; null = read the importance from the setting `imatrix`. */
  readonly collected: Collected | null;
  readonly signal: AbortSignal;
  /** Called with the fraction of the conversion that is done, 0..1. */
  readonly onProgress: (fraction: number) => void;
}

export interface ServiceOptions {
  readonly models: readonly ServedModel[];
  readonly defaultModelId: string;
  /** Seed of requests without a seed; null = random. */
  readonly defaultSeed: number | null;
  readonly limits: SchedulerLimits;
  /** Replacement for the module that a model's worker runs, for tests and benchmarks. */
  readonly modelModule?: URL;
  readonly frameIntervalMs: number;
  readonly speculation: SpeculationOptions;
  readonly prefixStore: PrefixStoreOptions | null;
  readonly generationPlace: GenerationPlaceInit;
  /** Folder of prepared adapters. It is removed when this process ends. */
  readonly adapterFolder: string;
  /** Real path of the folder that must contain all adapters loaded at run time; null = adapters may be in any folder. */
  readonly adapterRoot: string | null;
  /** Maximum number of models on this machine that are loaded at the same time; null = no limit. */
  readonly maxLoadedModels: number | null;
  /** Milliseconds without a request after which a model is unloaded; 0 = never. */
  readonly idleUnloadMs: number;
  /**
   * Converts a model's source to another quantization level and returns the spec of the result. If the source has that level
   * already, returns the given spec. Absent = models cannot be converted.
   */
  readonly requantize?: (request: RequantizeRequest) => Promise<ModelSpec>;
  readonly speechLimits: SpeechLimits;
  /** Returns the content of a stored file; absent = no files are stored. */
  readonly readFile?: (id: string) => Promise<Uint8Array>;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly clock?: Clock;
  readonly log: Logger;
  /** Called with the loaded fraction (0..1) of a model while the server starts. */
  readonly onLoadProgress: (id: string, fraction: number) => void;
}
