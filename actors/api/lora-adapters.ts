// LoraAdapters: the interface to load, list and unload LoRA adapters. Implemented in actors/lora-registry/.

/** The alias is as given, trimmed and not empty. */
export interface LoadAdapterRequest {
  /** Model id. */
  readonly model: string;
  readonly alias: string;
  /** A folder in the format of PEFT, or a GGUF adapter. */
  readonly path: string;
  /** An alias that exists is pointed to the new adapter; false: it is an error. */
  readonly replace: boolean;
  /** The version that the alias must have now (the wire's generation); null: any. */
  readonly expectedGeneration: string | null;
}

export interface UnloadAdapterRequest {
  readonly model: string;
  readonly alias: string;
  readonly expectedGeneration: string | null;
}

/** An alias and its adapter. */
export interface LoadedAdapter {
  readonly alias: string;
  /** The path or source as given. */
  readonly source: string;
  /** Revision of a source on the model hub; null: a local path. */
  readonly revision: string | null;
  /** sha256 of the effect on the model: 64 hexadecimal digits. */
  readonly generation: string;
  readonly rank: number;
  readonly bytes: number;
}

/** An adapter version in memory. */
export interface ResidentGeneration {
  readonly generation: string;
  readonly aliases: readonly string[];
  readonly rank: number;
  readonly bytes: number;
  /** No alias points to it; it is freed when its last request has ended. */
  readonly retired: boolean;
  /** Number of requests that use it. */
  readonly activeLeases: number;
}

export interface AdapterListing {
  readonly adapters: readonly LoadedAdapter[];
  readonly generations: readonly ResidentGeneration[];
  readonly residentBytes: number;
  readonly maxAdapters: number;
  readonly maxRank: number;
  readonly maxBytes: number;
}

/** All methods throw model_not_found, and lora_runtime_unavailable for a model that takes no adapters. */
export interface LoraAdapters {
  /** One at a time on the whole server, else lora_load_busy. Continues when the client leaves. */
  load(request: LoadAdapterRequest): Promise<LoadedAdapter>;
  /** Requests in flight keep the adapter. Returns the adapter that the alias named. */
  unload(request: UnloadAdapterRequest): Promise<LoadedAdapter>;
  list(model: string): AdapterListing;
}
