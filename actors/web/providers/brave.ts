// Brave Search API as a search provider.
import type { GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import type { SearchResult } from "../search-result.ts";
import { countryOf, queryWithDomains } from "./locale.ts";
import { askProvider, jsonResults, providerUrl, type SearchProvider, type SearchQuery } from "./provider.ts";

export const braveUrl = "https://api.search.brave.com";
const name = "brave";
const maxCount = 20;

export class Brave implements SearchProvider {
  readonly #fetcher: GuardedFetcher;
  readonly #base: string;
  readonly #key: string;

  constructor(fetcher: GuardedFetcher, base: string, key: string) {
    this.#fetcher = fetcher;
    this.#base = base;
    this.#key = key;
  }

  async search({ text, count, options }: SearchQuery, signal: AbortSignal): Promise<readonly SearchResult[]> {
    const country = countryOf(options.location);
    const timezone = options.location?.timezone ?? null;
    const url = providerUrl(this.#base, "res/v1/web/search");
    url.searchParams.set("q", queryWithDomains(text, options));
    url.searchParams.set("count", String(Math.min(count, maxCount)));
    if (country !== null) url.searchParams.set("country", country);
    const zone = timezone !== null && /^[\w/+-]{1,64}$/.test(timezone) ? { "x-loc-timezone": timezone } : {};
    const headers = { accept: "application/json", "x-subscription-token": this.#key, ...zone };
    const fetched = await askProvider(name, this.#fetcher, { url, headers }, signal);
    const list = ({ web }: Readonly<Record<string, unknown>>): unknown =>
      (web as { results?: unknown } | null)?.results;
    return await jsonResults(name, fetched, list, "description");
  }
}
