// Fetch options: settings of a fetch and its progress callbacks.

export interface HubLimits {
  /** Attempts of one request, or of one part of a file without progress. */
  readonly attempts: number;
  /** Delay before the second attempt; it doubles with each further one, and half of it is random. */
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** Longest Retry-After that is waited for; a longer one fails the request. */
  readonly maxRetryAfterMs: number;
  /** Time from the request to the head of the answer, redirects included. */
  readonly answerMs: number;
  /** A body without data for this long is aborted. */
  readonly stallMs: number;
  /** Parts of one file fetched at the same time. */
  readonly connections: number;
  readonly partBytes: number;
  /** An attempt that brings this many bytes counts as progress and resets the number of attempts. */
  readonly progressBytes: number;
  /** Interval at which progress is recorded during a download. */
  readonly saveMs: number;
  /** Interval at which a file being fetched by another process is checked. */
  readonly lockPollMs: number;
}

/** Progress of a fetch in bytes; `totalBytes` is null while unknown. */
export interface FetchProgress {
  readonly phase: "download" | "unpack" | "verify";
  readonly doneBytes: number;
  readonly totalBytes: number | null;
}

/** Environment variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

export interface FetchOptions {
  /** Folder of package models; default: the user's cache directory. */
  readonly cacheDirectory?: string;
  /** The hub's cache, shared with Python; absent or null: from the environment. */
  readonly hfCache?: string | null | undefined;
  /** File or quantisation of a model that is named without one. */
  readonly quantizedFile?: string | null | undefined;
  /** Source of the hub's token: `literal:…`, `env:…`, `path:…`, `cache` (default) or `none`. */
  readonly tokenSource?: string | undefined;
  /** Default: the process's environment. */
  readonly environment?: Environment | undefined;
  /** Overrides of the default attempts, delays and sizes. */
  readonly limits?: Partial<HubLimits> | undefined;
  readonly onProgress?: ((progress: FetchProgress) => void) | undefined;
  /** Receives a sentence for the user about a problem that does not stop the fetch. */
  readonly onNotice?: ((message: string) => void) | undefined;
  /** Aborting stops the fetch, which then throws `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}
