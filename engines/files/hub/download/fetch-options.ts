// Owns what a caller may say about a fetch and hears of it. Used by every file of this folder and by cli/'s progress bar.
import type { HubLimits } from "../api/hub-context.ts";

/** Where a fetch is. `totalBytes` is null while it is unknown. */
export interface FetchProgress {
  readonly phase: "download" | "unpack" | "verify";
  readonly doneBytes: number;
  readonly totalBytes: number | null;
}

/** Variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

export interface FetchOptions {
  /** Where models that packages carry are kept; the user's cache directory where absent. */
  readonly cacheDirectory?: string;
  /** The hub's cache, shared with Python; where the environment says it is, where absent or null. */
  readonly hfCache?: string | null | undefined;
  /** The file, or the quantisation, of a model that is named without one. */
  readonly quantizedFile?: string | null | undefined;
  /** Where the hub's token comes from: `literal:…`, `env:…`, `path:…`, `cache` (where absent) or `none`. */
  readonly tokenSource?: string | undefined;
  /** The process's own where absent. */
  readonly environment?: Environment | undefined;
  /** Tries, waits and sizes other than the usual ones. */
  readonly limits?: Partial<HubLimits> | undefined;
  readonly onProgress?: ((progress: FetchProgress) => void) | undefined;
  /** Told, in a sentence, what a user should know although the fetch goes on. */
  readonly onNotice?: ((message: string) => void) | undefined;
  /** Aborting stops a fetch; the call then throws `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}
