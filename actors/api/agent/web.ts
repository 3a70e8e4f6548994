// Web: the interface of the tools that search the web and read pages. The web thread (actors/web) implements it.

/** Amount of text that a search returns from the pages it finds. */
export type SearchContextSize = "low" | "medium" | "high";

/** Options of a request for the web tools. */
export interface WebOptions {
  readonly contextSize: SearchContextSize;
  /** Approximate location of the user; null = unknown. Search providers without such a parameter ignore it. */
  readonly location: UserLocation | null;
  /** Only domains that searches and page requests may use, including subdomains; empty = all domains. */
  readonly allowedDomains: readonly string[];
  readonly blockedDomains: readonly string[];
}

export interface UserLocation {
  readonly city: string | null;
  /** Two-letter country code. */
  readonly country: string | null;
  readonly region: string | null;
  /** IANA time zone. */
  readonly timezone: string | null;
}

export const defaultWebOptions: WebOptions = {
  contextSize: "medium",
  location: null,
  allowedDomains: [],
  blockedDomains: [],
};

/** One search result. */
export interface FoundPage {
  readonly title: string;
  readonly url: string;
  readonly description: string;
  /** Passages of the page that match the query best, as markdown; the search provider's description if the page could not be read. */
  readonly content: string;
}

/** Text of a page. */
export interface PageText {
  readonly url: string;
  readonly title: string;
  /** Main text as markdown. */
  readonly content: string;
  /** Whether the text was cut at the size limit. */
  readonly isCut: boolean;
}

export interface Web {
  /**
   * Searches the web and reads the pages it finds. Returns the best page first. Throws a ServerError if the providers are
   * unavailable, a limit is exceeded or the query is invalid; throws `cancelled` after the signal is aborted.
   */
  search(
    request: { readonly query: string; readonly options: WebOptions; readonly client: string },
    signal: AbortSignal,
  ): Promise<readonly FoundPage[]>;
  /** Reads a page. Throws a ServerError if the URL is not allowed or the page cannot be read; `cancelled` after the signal is aborted. */
  read(
    request: { readonly url: string; readonly options: WebOptions; readonly client: string },
    signal: AbortSignal,
  ): Promise<PageText>;
}
