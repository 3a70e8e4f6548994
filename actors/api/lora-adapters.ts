// LoraAdapters: the interface to load, list and unload LoRA adapters. Implemented in actors/lora-registry/.

import type { ErrorCode } from "../../runtime/errors.ts";

/** A request to load an adapter. The alias is the request's alias without surrounding white space, and is not empty. */
export interface LoadAdapterRequest {
  /** Id of the model. */
  readonly model: string;
  readonly alias: string;
  /** A folder in PEFT format, or a GGUF adapter file. */
  readonly path: string;
  /** true: an existing alias then refers to the new adapter. false: an existing alias is an error. */
  readonly replace: boolean;
  /** Content hash of the version that the alias must refer to (`generation` in the HTTP API); null: any version. */
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
  /** The path or source as written in the request or the settings. */
  readonly source: string;
  /** Revision of a source on the model hub; null: a local path. */
  readonly revision: string | null;
  /** Content hash of the adapter's effect on the model: sha256, 64 hexadecimal digits. */
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
  /** Whether the version has no alias any more. It is freed when its last request has ended. */
  readonly retired: boolean;
  /** Number of requests that use the version. */
  readonly activeLeases: number;
}

/** An adapter that a replica does not have, although clients have loaded it on another one. */
export interface AdapterFailure {
  readonly replica: string;
  readonly model: string;
  readonly alias: string;
  /** Path as sent by the client. */
  readonly source: string;
  readonly code: ErrorCode;
  readonly message: string;
}

export interface AdapterListing {
  readonly adapters: readonly LoadedAdapter[];
  readonly generations: readonly ResidentGeneration[];
  readonly residentBytes: number;
  readonly maxAdapters: number;
  readonly maxRank: number;
  readonly maxBytes: number;
}

/** Every method throws model_not_found, and lora_runtime_unavailable for a model that does not support adapters. */
export interface LoraAdapters {
  /** Loads an adapter. Throws lora_load_busy if the server is loading another one. Continues if the client disconnects. */
  load(request: LoadAdapterRequest): Promise<LoadedAdapter>;
  /** Removes an alias. Running requests keep the adapter. Returns the adapter that the alias pointed to. */
  unload(request: UnloadAdapterRequest): Promise<LoadedAdapter>;
  list(model: string): AdapterListing;
  /** Returns the failures of all replicas with the same state. */
  failures(model: string): Promise<readonly AdapterFailure[]>;
}
