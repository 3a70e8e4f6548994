// DuckDuckGo's HTML interface as a search provider. It needs no API key.
import type { GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import type { Extractor } from "../readers/extractor.ts";
import type { SearchResult } from "../search-result.ts";
import { queryWithDomains, regionOf } from "./locale.ts";
import { askProvider, providerError, type SearchProvider, type SearchQuery } from "./provider.ts";

export const duckDuckGoUrl = "https://html.duckduckgo.com";
const name = "duckduckgo";
const headers = { "user-agent": "Mozilla/5.0 (compatible; troupe)", accept: "text/html" };

export class DuckDuckGo implements SearchProvider {
  readonly #fetcher: GuardedFetcher;
  readonly #base: string;
  readonly #extractor: Extractor;

  constructor(fetcher: GuardedFetcher, base: string, extractor: Extractor) {
    this.#fetcher = fetcher;
    this.#base = base;
    this.#extractor = extractor;
  }

  async search({ text, count, options, client }: SearchQuery, signal: AbortSignal): Promise<readonly SearchResult[]> {
    const url = new URL("/html/", this.#base);
    url.searchParams.set("q", queryWithDomains(text, options));
    const region = regionOf(options.location);
    if (region !== null) url.searchParams.set("kl", region);
    const fetched = await askProvider(name, this.#fetcher, { url, headers }, signal);
    const contentType = fetched.headers["content-type"] ?? "";
    const results = await this.#extractor.run("results", { bytes: fetched.body, contentType }, { client, signal });
    if (results === "blocked") {
      const advice = "try again later, or set another search_provider";
      throw providerError(name, `it asks whether this server is human; ${advice}`);
    }
    if (results === "unknown") throw providerError(name, "expected a page of results");
    return results.slice(0, count);
  }
}
