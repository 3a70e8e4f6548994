// Options of the inference service, made by cli/ from the settings.
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
  /** Seed of requests without one; null: random. */
  readonly defaultSeed: number | null;
  readonly limits: SchedulerLimits;
  /** Replaces the module of a model's place, in tests and benchmarks. */
  readonly modelModule?: URL;
  readonly frameIntervalMs: number;
  readonly speculation: SpeculationOptions;
  readonly prefixStore: PrefixStoreOptions | null;
  readonly agents: GenerationPlaceInit;
  /** Folder of prepared adapters, removed when this process ends. */
  readonly adapterFolder: string;
  /** Real path of the folder that adapters loaded at run time must lie in; null: any. */
  readonly adapterRoot: string | null;
  /** Most models loaded at the same time; null = all. */
  readonly maxLoadedModels: number | null;
  /** Unload a model after this time without a request; 0 = never. */
  readonly idleUnloadMs: number;
  readonly restart: RestartPolicy;
  readonly loadTimeoutMs: number;
  readonly clock?: Clock;
  readonly log: Logger;
  /** Reports the loaded fraction of a model while the server starts. */
  readonly onLoadProgress: (id: string, fraction: number) => void;
}
