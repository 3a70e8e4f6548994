// Tavily as a search provider.
import type { GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import type { SearchResult } from "../search-result.ts";
import { countryName } from "./locale.ts";
import { askProvider, jsonResults, providerUrl, type SearchProvider, type SearchQuery } from "./provider.ts";

export const tavilyUrl = "https://api.tavily.com";
const name = "tavily";
const maxCount = 20;

export class Tavily implements SearchProvider {
  readonly #fetcher: GuardedFetcher;
  readonly #base: string;
  readonly #key: string;

  constructor(fetcher: GuardedFetcher, base: string, key: string) {
    this.#fetcher = fetcher;
    this.#base = base;
    this.#key = key;
  }

  async search({ text, count, options }: SearchQuery, signal: AbortSignal): Promise<readonly SearchResult[]> {
    const { allowedDomains, blockedDomains, location } = options;
    const country = countryName(location);
    const body = JSON.stringify({
      query: text,
      max_results: Math.min(count, maxCount),
      ...(allowedDomains.length > 0 ? { include_domains: allowedDomains } : {}),
      ...(blockedDomains.length > 0 ? { exclude_domains: blockedDomains } : {}),
      ...(country === null ? {} : { country }),
    });
    const headers = {
      accept: "application/json",
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(body)),
      authorization: `Bearer ${this.#key}`,
    };
    const url = providerUrl(this.#base, "search");
    const fetched = await askProvider(name, this.#fetcher, { url, method: "POST", headers, body }, signal);
    return await jsonResults(name, fetched, ({ results }) => results, "content");
  }
}
