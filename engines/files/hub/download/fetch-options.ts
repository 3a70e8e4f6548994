// Fetch options: settings of a fetch and its progress callbacks.

export interface HubLimits {
  /** Maximum number of attempts for one request, or for one part of a file, without progress in between. */
  readonly attempts: number;
  /**
   * Delay before the second attempt in milliseconds. The delay doubles with each further attempt, and half of it is
   * random.
   */
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** Maximum wait in milliseconds that a Retry-After header may request; if it is longer, the request fails. */
  readonly maxRetryAfterMs: number;
  /** Maximum time from sending a request to receiving the response headers, including redirects. */
  readonly answerMs: number;
  /** Maximum time without data from a response body; after this time the request is aborted. */
  readonly stallMs: number;
  /** Number of parts of one file that are fetched at the same time. */
  readonly connections: number;
  readonly partBytes: number;
  /** Number of bytes that an attempt must fetch to count as progress, which resets the number of attempts. */
  readonly progressBytes: number;
  /** Interval at which a download's progress is written to disk. */
  readonly saveMs: number;
  /** Interval at which a waiting process checks the lock of another process that is fetching the file. */
  readonly lockPollMs: number;
}

/** Progress of a fetch in bytes; `totalBytes` is null while unknown. */
export interface FetchProgress {
  readonly phase: "download" | "unpack" | "verify";
  readonly doneBytes: number;
  readonly totalBytes: number | null;
}

export type Environment = Readonly<Record<string, string | undefined>>;

export interface FetchOptions {
  /** Folder of the package cache; default: the user's cache directory. */
  readonly cacheDirectory?: string;
  /** Folder of the hub cache, shared with the Python library; absent or null = taken from the environment. */
  readonly hfCache?: string | null | undefined;
  /** File or quantisation to use if the model's source names none. */
  readonly quantizedFile?: string | null | undefined;
  /** Format to fetch if a repository or folder has both: "plain" = config.json with safetensors, "gguf" (default) = GGUF files. */
  readonly format?: "plain" | "gguf" | undefined;
  /** Quantisations to choose from if there are several models, best first. They take precedence over the default ones. */
  readonly quantisations?: readonly string[] | undefined;
  /** Size in bytes that the chosen model should not exceed: the largest quantized model that fits is chosen, or else the smallest. */
  readonly roomBytes?: number | undefined;
  /** UQFF shards or a UQFF quantization to fetch; absent or empty = other formats are preferred. */
  readonly fromUqff?: readonly string[] | undefined;
  /** Source of the hub's token: `literal:…`, `env:…`, `path:…`, `cache` (default) or `none`. */
  readonly tokenSource?: string | undefined;
  /** Environment variables; default: those of the process. */
  readonly environment?: Environment | undefined;
  /** Replacements for the default numbers of attempts, delays and sizes. */
  readonly limits?: Partial<HubLimits> | undefined;
  readonly onProgress?: ((progress: FetchProgress) => void) | undefined;
  /** Called with a message for the user about a problem that does not stop the fetch. */
  readonly onNotice?: ((message: string) => void) | undefined;
  /** Aborting stops the fetch, which then throws `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}
