// Owns the nouns of the adapters of one model: what is in memory, what is asked for, what became of it. Plain data.
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { LoadedAdapter } from "../api/lora-adapters.ts";

/** A prepared adapter on disk. */
export interface Content {
  readonly prepared: PreparedAdapter;
  /** The folder that holds its file and nothing else. */
  readonly home: string;
}

/** One content in memory. The same content, freed and loaded again, is another one with another id. */
export interface AdapterVersion extends Content {
  /** The engine's name for it. */
  readonly id: number;
}

/** An alias to be, where its adapter came from, and on which conditions it may be. */
export interface Wanted {
  readonly alias: string;
  readonly source: string;
  readonly revision: string | null;
  readonly replace: boolean;
  readonly expectedGeneration: string | null;
}

/** What became of an alias. */
export interface Pointed {
  readonly loaded: LoadedAdapter;
  /** The generation it stood for before. */
  readonly replaced: string | null;
  /** That one, where nobody needs it any more. */
  readonly freed: AdapterVersion | null;
}
