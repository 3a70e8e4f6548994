// Owns the face the front thread shows to the routes that load, list and unload LoRA adapters. Implemented in
// actors/lora-registry/; tests of http/ implement it with a few lines.

/** Aliases are as given: trimmed and not empty. */
export interface LoadAdapterRequest {
  /** Model id. */
  readonly model: string;
  readonly alias: string;
  /** A folder as PEFT writes it, or a GGUF adapter. */
  readonly path: string;
  /** The alias may be taken already: then it stands for the new adapter from now on. */
  readonly replace: boolean;
  /** Only if the alias stands for this generation now; null: whatever it stands for. */
  readonly expectedGeneration: string | null;
}

export interface UnloadAdapterRequest {
  readonly model: string;
  readonly alias: string;
  readonly expectedGeneration: string | null;
}

/** An alias and what it stands for. */
export interface LoadedAdapter {
  readonly alias: string;
  /** Where it came from, as it was given. */
  readonly source: string;
  /** Of a source on the model hub. */
  readonly revision: string | null;
  /** sha256 of what it does to the model: 64 hex digits. */
  readonly generation: string;
  readonly rank: number;
  readonly bytes: number;
}

/** An adapter that is in memory. */
export interface ResidentGeneration {
  readonly generation: string;
  readonly aliases: readonly string[];
  readonly rank: number;
  readonly bytes: number;
  /** No alias stands for it; it goes when the last request that uses it has ended. */
  readonly retired: boolean;
  /** Requests that use it. */
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

/** All throw model_not_found, and lora_runtime_unavailable for a model that takes no adapters. */
export interface LoraAdapters {
  /** One at a time on the whole server: else lora_load_busy. Goes on when nobody waits for it any more. */
  load(request: LoadAdapterRequest): Promise<LoadedAdapter>;
  /** Requests that use it go on with it. Returns what the alias stood for. */
  unload(request: UnloadAdapterRequest): Promise<LoadedAdapter>;
  list(model: string): AdapterListing;
}
