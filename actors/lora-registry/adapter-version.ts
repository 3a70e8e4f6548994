// AdapterVersion: the content of an adapter in memory, and the request to load an adapter. The HTTP API calls the content hash
// `generation`.
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { LoadAdapterRequest, LoadedAdapter } from "../api/lora-adapters.ts";

/** A prepared adapter on disk. */
export interface Content {
  readonly prepared: PreparedAdapter;
  /** The folder that contains only this adapter's file. */
  readonly home: string;
}

/** Adapter content in memory. If the same content is freed and loaded again, it becomes a new version with a new id. */
export interface AdapterVersion extends Content {
  /** Id of the adapter in the engine. */
  readonly id: number;
}

/** A request to load an adapter under an alias, with the request's conditions. */
export type Wanted = Pick<LoadedAdapter, "alias" | "source" | "revision"> &
  Pick<LoadAdapterRequest, "replace" | "expectedGeneration">;

/** Result of pointing an alias to a version. */
export interface Pointed {
  readonly loaded: LoadedAdapter;
  /** Content hash of the version to which the alias pointed before; null = the alias is new. */
  readonly replaced: string | null;
  /** The previous version if it is no longer needed, else null. */
  readonly freed: AdapterVersion | null;
}
