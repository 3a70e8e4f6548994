// SearXNG as a search provider. The operator runs the instance, which must have the format `json` enabled.
import type { GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import type { SearchResult } from "../search-result.ts";
import { localeOf, queryWithDomains } from "./locale.ts";
import { askProvider, jsonResults, providerUrl, type SearchProvider, type SearchQuery } from "./provider.ts";

const name = "searxng";

export class SearXng implements SearchProvider {
  readonly #fetcher: GuardedFetcher;
  readonly #base: string;

  constructor(fetcher: GuardedFetcher, base: string) {
    this.#fetcher = fetcher;
    this.#base = base;
  }

  async search({ text, count, options }: SearchQuery, signal: AbortSignal): Promise<readonly SearchResult[]> {
    const url = providerUrl(this.#base, "search");
    const language = localeOf(options.location) ?? "all";
    url.search = new URLSearchParams({ q: queryWithDomains(text, options), format: "json", language }).toString();
    const fetched = await askProvider(name, this.#fetcher, { url, headers: { accept: "application/json" } }, signal);
    const results = await jsonResults(name, fetched, ({ results: list }) => list, "content");
    return results.slice(0, count);
  }
}
