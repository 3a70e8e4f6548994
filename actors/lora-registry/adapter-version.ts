// AdapterVersion: the content of an adapter in memory, and the conditions of a request to load one. The HTTP API calls the hash
// of the content `generation`.
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { LoadAdapterRequest, LoadedAdapter } from "../api/lora-adapters.ts";

/** A prepared adapter on disk. */
export interface Content {
  readonly prepared: PreparedAdapter;
  /** The folder that contains only this adapter's file. */
  readonly home: string;
}

/** Content in memory. If the same content is freed and loaded again, it is a new version with a new id. */
export interface AdapterVersion extends Content {
  /** Id of the adapter in the engine. */
  readonly id: number;
}

/** A request to load an adapter under an alias, with its conditions. */
export type Wanted = Pick<LoadedAdapter, "alias" | "source" | "revision"> &
  Pick<LoadAdapterRequest, "replace" | "expectedGeneration">;

/** Result of pointing an alias to a version. */
export interface Pointed {
  readonly loaded: LoadedAdapter;
  /** Hash of the version that the alias pointed to before; null: none. */
  readonly replaced: string | null;
  /** The previous version if it is no longer needed, otherwise null. */
  readonly freed: AdapterVersion | null;
}
