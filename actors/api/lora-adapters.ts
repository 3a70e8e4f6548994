// LoraAdapters: the interface to load, list and unload LoRA adapters. Implemented in actors/lora-registry/.

import type { ErrorCode } from "../../runtime/errors.ts";

/** A request to load an adapter. The alias is trimmed and not empty. */
export interface LoadAdapterRequest {
  /** Id of the model. */
  readonly model: string;
  readonly alias: string;
  /** Path of a folder in PEFT format or of a GGUF adapter file. */
  readonly path: string;
  /** true: an existing alias is redirected to the new adapter. false: an existing alias is an error. */
  readonly replace: boolean;
  /** Content hash of the version to which the alias must currently refer (`generation` in the HTTP API); null = any version. */
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
  /** Path or source as written in the request or the settings. */
  readonly source: string;
  /** Revision of a source on the model hub; null for a local path. */
  readonly revision: string | null;
  /** Content hash that identifies the version of the adapter: SHA-256 of the prepared adapter file, 64 hexadecimal digits. */
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
  /** Whether the version has lost its alias. It is freed when its last request has ended. */
  readonly retired: boolean;
  /** Number of running requests that use the version. */
  readonly activeLeases: number;
}

/** An adapter that a replica failed to load, although clients have loaded it on another replica. */
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
  /** Loads an adapter. Throws lora_load_busy if the server is loading another adapter. The load continues if the client disconnects. */
  load(request: LoadAdapterRequest): Promise<LoadedAdapter>;
  /** Removes an alias and returns the adapter to which it referred. Running requests keep using the adapter. */
  unload(request: UnloadAdapterRequest): Promise<LoadedAdapter>;
  list(model: string): AdapterListing;
  /** Returns the failed loads of all replicas that share the state. */
  failures(model: string): Promise<readonly AdapterFailure[]>;
}
