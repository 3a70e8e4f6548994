// Owns what a Front is told. Made by cli/ from the settings; plain data but for the log and the clock.
import type { PrefixStoreOptions } from "../../engines/decoding/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../../engines/decoding/scheduler/limits.ts";
import type { SpeculationOptions } from "../../engines/decoding/speculation/options.ts";
import type { RestartPolicy } from "../../runtime/actor/supervision.ts";
import type { Clock } from "../../runtime/clock.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { GenerationPlaceInit } from "../messages.ts";
import type { ServedModel } from "../models/served-model.ts";

export interface ServiceOptions {
  readonly models: readonly ServedModel[];
  readonly defaultModelId: string;
  /** Seed of requests that bring none; null draws one. */
  readonly defaultSeed: number | null;
  readonly limits: SchedulerLimits;
  /** What runs on a model's place, where it is not the real thing: for tests and benchmarks. */
  readonly modelModule?: URL;
  readonly frameIntervalMs: number;
  readonly speculation: SpeculationOptions;
  readonly prefixStore: PrefixStoreOptions | null;
  readonly agents: GenerationPlaceInit;
  /** Where prepared adapters are kept, which is gone when this process is. */
  readonly adapterFolder: string;
  /** The real path that adapters loaded at run time must lie in; null where any will do. */
  readonly adapterRoot: string | null;
  /** Most models loaded at the same time; null = all. */
  readonly maxLoadedModels: number | null;
  /** A model that no request has named for so long is unloaded; 0 = never. */
  readonly idleUnloadMs: number;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly clock?: Clock;
  readonly log: Logger;
  /** Fraction loaded, by model, while the server starts. */
  readonly onLoadProgress: (id: string, fraction: number) => void;
}
