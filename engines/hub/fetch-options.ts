// Owns what a caller may say about a fetch and hears of it. Used by every file of this folder and by cli/'s progress bar.

/** Where a fetch is. `totalBytes` is null while it is unknown. */
export interface FetchProgress {
  readonly phase: "download" | "unpack" | "verify";
  readonly doneBytes: number;
  readonly totalBytes: number | null;
}

export interface FetchOptions {
  /** Where fetched models are kept; the user's cache directory where absent. */
  readonly cacheDirectory?: string;
  readonly onProgress?: ((progress: FetchProgress) => void) | undefined;
  /** Aborting stops a fetch; the call then throws `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}
